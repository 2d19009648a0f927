"""What old loops left goes, what stands or may be gone on with stays."""

import os
from pathlib import Path

import pytest

from models.errors import LeaseLostError, UsageError
from tasks.loop.work_gc import DAY_S, KEEP, keep_days, sweep

NOW = 2e9


def still_ours() -> None:
    """No other process has taken the loop over."""


def made(path: Path, days: float, content: str = "12345") -> Path:
    """A file, and all that is above it in its piece of work, last written so many days ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    for one in (path, path.parent, path.parent.parent):
        os.utime(one, (NOW - days * DAY_S,) * 2)
    return path


def test_old_work_goes_and_what_stands_stays(tmp_path: Path) -> None:
    old, standing, new = (made(tmp_path / "work" / "train" / key / "best.pt", days) for key, days in
                          (("old", 15), ("standing", 40), ("new", 13)))  # fmt: skip
    tensors = made(tmp_path / "work" / "tensors" / "ab-cd" / "x.safetensors", 20)
    pages = made(tmp_path / "pages" / "old.html", 20)
    assert sweep(tmp_path, [standing.parent, tmp_path / "work" / "card" / "none"], 14, still_ours, NOW) == 10
    assert [path.exists() for path in (old, tensors, standing, new, pages)] == [False, False, True, True, True]
    assert sorted(path.name for path in (tmp_path / "work" / "train").iterdir()) == ["new", "standing"]
    assert sweep(tmp_path, [], 14, still_ours, NOW + 13 * DAY_S) == 5, "what stood is counted from then on"
    assert standing.exists()


def test_a_long_training_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "work" / "train" / "long"
    checkpoint = made(folder / "checkpoints" / "7" / "model.pt", 2)
    os.utime(folder, (NOW - 30 * DAY_S,) * 2)
    assert sweep(tmp_path, [], 14, still_ours, NOW) == 0
    assert checkpoint.exists()


def test_how_long_is_said_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP, raising=False)
    assert keep_days() == 14
    monkeypatch.setenv(KEEP, "0.5")
    assert keep_days() == 0.5
    for wrong in ("-1", "a week", "nan"):
        monkeypatch.setenv(KEEP, wrong)
        with pytest.raises(UsageError, match=f"{KEEP}: got '{wrong}', expected a number of days"):
            keep_days()


def test_a_project_that_never_ran_has_nothing_to_lose(tmp_path: Path) -> None:
    assert sweep(tmp_path, [], 0, still_ours, NOW) == 0


def test_who_lost_the_loop_removes_nothing(tmp_path: Path) -> None:
    def lost() -> None:
        raise LeaseLostError("taken over")

    old = tmp_path / "work" / "train" / "old"
    old.mkdir(parents=True)
    os.utime(old, (NOW - 20 * DAY_S,) * 2)
    assert sweep(tmp_path, [], 14, lost, NOW) == 0
    assert old.is_dir()
