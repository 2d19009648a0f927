"""A worker's state begins with a shelf and a book for each project."""

from pathlib import Path

from tasks.release.settings import Settings
from tasks.serve.state import State


def test_every_project_has_its_own(tmp_path: Path) -> None:
    state = State.of(Settings(str(tmp_path), ("tiny", "other")))
    assert list(state.shelves) == list(state.books) == ["tiny", "other"]
    assert not state.shelves["tiny"].is_ready
    assert not state.is_ending
