"""A worker's state begins with a shelf and a book for each project."""

from pathlib import Path

from tasks.release.settings import ServerSettings
from tasks.serve.state import WorkerState


def test_every_project_has_its_own(tmp_path: Path) -> None:
    state = WorkerState.of(ServerSettings(str(tmp_path), ("tiny", "other")))
    assert list(state.loaded) == list(state.prediction_loggers) == ["tiny", "other"]
    assert not state.loaded["tiny"].is_ready
    assert not state.is_ending
