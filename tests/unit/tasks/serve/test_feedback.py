"""Labels by a prediction's id; `tests/integration/test_served_log.py` sends them to a real server."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from starlette.requests import Request

from models.files import write_json
from models.serving import json_pieces
from tasks.release.settings import ServerSettings
from tasks.serve.feedback import feedback
from tasks.serve.prediction_logger import PredictionLogger
from tasks.serve.state import WorkerState
from tests.served_models import write_served


@pytest.mark.parametrize(("num_labels", "is_large"), [(2, False), (6000, True)])
def test_many_labels_are_read_and_written_outside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_labels: int, is_large: bool
) -> None:
    settings = ServerSettings(str(tmp_path), ("tiny",))
    write_served(settings.workspace.cache / "models" / "tiny" / "1")
    write_json(settings.release_path("tiny"), {"generation": 1, "stable": "1"})
    state = WorkerState.of(settings)
    body = orjson.dumps([{"id": f"q-{at}", "label": "yes"} for at in range(num_labels)])
    in_loop: list[bool] = []
    parsed: list[int] = []

    def loads(content: bytes, loads: Any = orjson.loads) -> Any:
        parsed.append(len(content))
        return loads(content)

    def note(_: PredictionLogger, pairs: list[tuple[str, str]], by: str) -> None:
        in_loop.append(threading.current_thread() is threading.main_thread())
        assert (len(pairs), by) == (num_labels, "feedback")

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send() -> Any:
        await state.loaded["tiny"].refresh()
        scope = {"type": "http", "headers": [], "path_params": {"name": "tiny"}, "app": SimpleNamespace(state=state)}
        return await feedback(Request(cast("Any", scope), receive))

    monkeypatch.setattr(PredictionLogger, "note", note)
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(orjson, "loads", loads)
    assert orjson.loads(asyncio.run(send()).body) == {"accepted": num_labels, "empty": 0, "model": "tiny"}
    assert in_loop == [not is_large]
    assert (max(parsed) < len(body)) == is_large
