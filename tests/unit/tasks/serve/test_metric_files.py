"""Metrics of workers that are no more: what they counted stays, what they said of themselves goes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.serve.metric_files import SHARED, forget_dead_workers, share_between_workers


def test_a_folder_is_emptied_and_named_to_the_workers(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "counter_1.db").touch()
    share_between_workers(tmp_path / "metrics")
    assert os.environ[SHARED] == str(tmp_path / "metrics")
    assert list((tmp_path / "metrics").iterdir()) == []


def test_the_dead_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    files = [f"gauge_livesum_{dead.pid}.db", f"counter_{dead.pid}.db", f"gauge_livesum_{os.getpid()}.db"]
    for name in files:
        (tmp_path / name).touch()
    forget_dead_workers()
    monkeypatch.setenv(SHARED, str(tmp_path))
    forget_dead_workers()
    assert {path.name for path in tmp_path.iterdir()} == set(files[1:])
