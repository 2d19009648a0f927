"""One way for every protocol: the version that is picked reads the rows, answers, and the answer is written down."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from models.files import write_json
from models.inference.loaded_model import LoadedModel, Prediction
from models.serving import json_pieces
from models.serving.framing import unframed
from models.serving.http_errors import RequestError
from models.serving.predict_request import PredictRequest
from tasks.release.loaded_versions import LoadedVersions
from tasks.release.settings import ServerSettings
from tasks.serve import scoring
from tasks.serve.answering import PredictResponse, answer
from tasks.serve.calls import HttpRequest
from tasks.serve.prediction_logger import PredictionLogger
from tasks.serve.state import WorkerState
from tasks.state.segments import segments_folder
from tests.served_models import write_served

TWO = {"x": [1.0, -2.0], "c": ["u", None]}


def asked(columns: dict[str, list[object]] | None = None, **more: object) -> PredictRequest:
    given = {**TWO, "why": ["a", "b"]} if columns is None else columns
    return PredictRequest(lambda schema: schema.from_columns(given), **more)  # type: ignore[arg-type]


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    return ServerSettings(str(tmp_path), ("tiny", "other"))


@pytest.fixture
def state(settings: ServerSettings) -> WorkerState:
    """Version 2 of `tiny` answers, 1 is its previous; `other` has none yet."""
    for number in ("1", "2"):
        write_served(settings.workspace.cache / "models" / "tiny" / number)
    write_json(settings.release_path("tiny"), {"generation": 1, "stable": "2", "previous": "1"})
    state = WorkerState.of(settings)
    asyncio.run(state.loaded["tiny"].refresh())
    return state


def ask(state: WorkerState, **more: object) -> PredictResponse:
    return asyncio.run(answer(state, asked(**more)))  # type: ignore[arg-type]


def test_the_stable_version_answers_and_it_is_written_down(state: WorkerState, settings: ServerSettings) -> None:
    answered = ask(state, name="tiny")
    assert (answered.served.version, answered.answer.num_rows, len(set(answered.ids))) == ("2", 2, 2)
    (segment,) = segments_folder(settings.state("tiny")).iterdir()
    ((_, payload),) = unframed(segment.read_bytes())
    record = orjson.loads(payload)
    assert (record["ids"], record["version"], record["raw"]) == (list(answered.ids), "2", {"why": ["a", "b"]})


@pytest.mark.parametrize(
    ("num_rows", "note", "parsed_in_loop", "read_in_loop"),
    [(2, "", True, True), (1000, "n" * 100, True, True), (6000, "", True, False), (16_000, "", False, False)],
)
def test_a_large_body_is_read_recorded_and_rendered_outside_the_event_loop(
    state: WorkerState,
    monkeypatch: pytest.MonkeyPatch,
    num_rows: int,
    note: str,
    parsed_in_loop: bool,
    read_in_loop: bool,
) -> None:
    body = orjson.dumps([{"x": 1.0, "c": "u", "n": note}] * num_rows)
    in_loop: dict[str, bool] = {}

    def monitor(owner: object, name: str) -> None:
        function = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            in_loop[name] = threading.current_thread() is threading.main_thread()
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in (
        (scoring, "_scoring"),
        (PredictionLogger, "enter"),
        (LoadedModel, "records"),
        (scoring, "answered"),
    ):
        monitor(owner, name)
    monitor(type(state.loaded["tiny"].pick("").schema), "from_records")  # type: ignore[union-attr]
    said = asyncio.run(scoring.score(HttpRequest(state, {}, body, {"name": "tiny"})))
    document = orjson.loads(said.body)
    assert (len(document["predictions"]), len(document["ids"])) == (num_rows, num_rows)
    assert in_loop.pop("_scoring") is parsed_in_loop
    assert in_loop == dict.fromkeys(("from_records", "enter", "records", "answered"), read_in_loop)


def test_many_rows_are_answered_and_logged_piece_by_piece_as_at_once(
    state: WorkerState, settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"x": at / 7, "c": "uv"[at % 2], "y": "no", "why": {"deep": at}} for at in range(11)]
    body = orjson.dumps({"dataframe_records": rows, "ids": [f"row {at}" for at in range(11)]})

    def scored() -> Any:
        return orjson.loads(asyncio.run(scoring.score(HttpRequest(state, {}, body, {"name": "tiny"}))).body)

    at_once = scored()
    monkeypatch.setattr(json_pieces, "PIECE_ITEMS", 3)
    assert scored() == at_once
    (segment,) = segments_folder(settings.state("tiny")).iterdir()
    first, second = (orjson.loads(payload) for _, payload in unframed(segment.read_bytes()))
    assert second | {"at": first["at"]} == first


def test_the_event_loop_goes_on_while_a_large_body_is_read(state: WorkerState, monkeypatch: pytest.MonkeyPatch) -> None:
    body = orjson.dumps([{"x": 1.0, "c": "u"}] * 16_000)
    start, may_end = threading.Event(), threading.Event()
    read = scoring._scoring

    def slow(kind: str, body: bytes) -> Any:
        start.set()
        assert may_end.wait(20), "the event loop waited for the large body"
        return read(kind, body)

    async def run() -> int:
        monkeypatch.setattr(scoring, "_scoring", slow)
        large = asyncio.create_task(scoring.score(HttpRequest(state, {}, body, {"name": "tiny"})))
        while not start.is_set():
            await asyncio.sleep(0)
        assert not large.done()
        assert (await answer(state, asked(name="tiny"))).answer.num_rows == 2
        may_end.set()
        return (await large).status

    assert asyncio.run(run()) == 200


def test_while_there_is_a_shadow_all_that_it_needs_is_written_down(settings: ServerSettings) -> None:
    write_served(settings.workspace.cache / "models" / "tiny" / "1", "language")
    state = WorkerState.of(settings)
    for generation, shadow in enumerate((None, "9"), 1):
        write_json(settings.release_path("tiny"), {"generation": generation, "stable": "1", "shadow": shadow})
        asyncio.run(state.loaded["tiny"].refresh())
        asyncio.run(answer(state, PredictRequest(lambda schema: schema.from_array(["ab"]), "tiny")))
    (segment,) = segments_folder(settings.state("tiny")).iterdir()
    first, second = (orjson.loads(payload) for _, payload in unframed(segment.read_bytes()))
    assert "sent" not in first
    assert second["sent"] == {"line": ["ab"]}


def test_a_value_for_which_the_model_finds_no_number_is_refused_and_not_written_down(
    state: WorkerState, settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    chances = np.array([[0.5, 0.5], [np.nan, np.nan]], np.float32)
    said = Prediction("tiny", "2", {"label": np.array(["no", "no"], object), "probabilities": chances})
    monkeypatch.setattr(LoadedModel, "answer", lambda *_: said)
    with pytest.raises(RequestError, match="row 2: the model finds no number: a value lies too far") as refused:
        ask(state, name="tiny")
    assert refused.value.status == 400
    assert not segments_folder(settings.state("tiny")).exists()


def test_the_version_that_was_asked_for_answers(state: WorkerState) -> None:
    assert ask(state, name="tiny", version="1").served.version == "1"


def test_the_callers_ids_name_the_rows(state: WorkerState) -> None:
    assert list(ask(state, name="tiny", ids=["a", "b"]).ids) == ["a", "b"]
    assert list(ask(state, name="tiny", key="r7").ids) == ["r7-0", "r7-1"]
    assert list(ask(state, name="tiny", key="r7", columns={"x": [1], "c": ["u"]}).ids) == ["r7"]


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({"name": None}, 404, "several models"),
        ({"name": "tini"}, 404, "there is tiny, other"),
        ({"name": "tiny", "version": "9"}, 404, "version '9' is not loaded: there is 2, 1"),
        ({"name": "other"}, 503, "no version is loaded yet"),
        ({"name": "tiny", "ids": ["a"]}, 400, "1 ids for 2 rows"),
        ({"name": "tiny", "columns": {"x": ["a"], "c": [1]}}, 400, "expected a number"),
    ],
)
def test_what_is_not_answered_says_why(state: WorkerState, more: dict[str, object], status: int, said: str) -> None:
    with pytest.raises(RequestError, match=said) as refused:
        ask(state, **more)
    assert refused.value.status == status


class Counts:
    """Stands before a shelf and remembers what was counted of its versions."""

    def __init__(self, loaded: LoadedVersions) -> None:
        self.loaded, self.counted = loaded, list[tuple[str, bool]]()
        self.row_s = list[float]()

    def __getattr__(self, name: str) -> object:
        return getattr(self.loaded, name)

    def count(self, version: str, row_s: float, failed: bool = False) -> None:
        self.counted.append((version, failed))
        self.row_s.append(row_s)


def test_only_what_the_model_does_counts_for_or_against_its_version(
    state: WorkerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(state.loaded["tiny"])
    state.loaded["tiny"] = counts  # type: ignore[assignment]
    assert ask(state, name="tiny").answer.row_s == counts.row_s[0] > 0, "of its own call, not of the version's last"
    with pytest.raises(RequestError):
        ask(state, name="tiny", deadline=0.0)
    with pytest.raises(RequestError):
        asyncio.run(answer(state, asked({"x": ["no number"], "c": ["u"]}, name="tiny")))
    assert counts.counted == [("2", False)]

    def broken(*_: object) -> None:
        raise RuntimeError("the graph broke")

    monkeypatch.setattr(LoadedModel, "answer", broken)
    with pytest.raises(RuntimeError):
        ask(state, name="tiny")
    assert counts.counted == [("2", False), ("2", True)]
