"""A task's progress on Prefect's page: made once, renewed seldom, and left out where Prefect does not answer."""

from typing import Any

import pytest

from models.errors import StoreError
from tasks.prefect import progress
from tasks.prefect.progress import ProgressArtifact


def test_progress_is_one_artifact_that_is_renewed_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str, Any]] = []

    def ask(_: str, path: str, body: Any, method: str = "POST", timeout_s: float = 0.0) -> Any:
        assert timeout_s <= 2.0, "training waits for it"
        requests.append((method, path, body["data"]))
        return {"id": "a-1"}

    monkeypatch.setattr(progress, "ask", ask)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    artifact = ProgressArtifact("train-progress", "f", "t")
    for epoch in range(1, 31):
        artifact.show(epoch, 30, "val_loss 0.5")
    assert requests == [("POST", "artifacts/", 3.3), ("PATCH", "artifacts/a-1", 100.0)]


def test_a_server_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def ask(*request: Any, **_: Any) -> Any:
        requests.append(request)
        raise StoreError("away")

    monkeypatch.setattr(progress, "ask", ask)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    artifact = ProgressArtifact("train-progress", "f", "t")
    artifact.show(1, 2, "")
    artifact.show(2, 2, "")
    assert len(requests) == 1
