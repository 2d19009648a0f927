"""A module of Loopline runs as if Python ran it by name, wherever packages of the same names lie."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.launch import ROOT, launched


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    for name in ("models", "tasks", "flows"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError(__name__)\n")
    return tmp_path


def test_packages_of_a_team_are_not_loaded_in_place_of_ours(hostile: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(hostile)}
    command = [sys.executable, *launched("tasks.release.smoke_test", "--help")]
    outcome = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True, check=False)
    assert "RuntimeError" not in outcome.stderr
    assert str(ROOT / "tasks" / "release" / "smoke_test.py") in outcome.stderr


def test_a_module_has_its_arguments_and_name(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(
        "import sys\nprint(__name__, __spec__.name, sys.argv[1:], sys.flags.safe_path)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, *launched("shown", "a b", "-c")]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert said == "__main__ shown ['a b', '-c'] True\n"
