"""An action runs in the process that was started when the person was asked; the moves themselves: test_page.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tasks.dashboard import acting
from tasks.dashboard.acting import ActionRequest, act, prepare
from tasks.host.workspace import Workspace

REQUEST = ActionRequest(action="promote", model="tiny", version="2", expected="1")
PYTHON = """#!{python}
import os, sys
open("{notes}/" + str(os.getpid()), "w").close()
request = sys.stdin.read()
print('{{"done": true, "text": "' + str(os.getpid()) + '"}}' if "tiny" in request else "")
"""


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which each process that is started leaves its pid."""
    folder, program = tmp_path / "notes", tmp_path / "python"
    folder.mkdir()
    program.write_text(PYTHON.format(python=sys.executable, notes=folder))
    program.chmod(0o700)
    monkeypatch.setattr(acting.sys, "executable", str(program))  # a forked test worker has another
    return folder


def test_the_process_that_was_started_early_takes_the_action(workspace: Workspace, notes: Path) -> None:
    prepare(workspace)
    prepare(workspace)
    result = act(workspace, REQUEST)
    assert result.done
    assert [path.name for path in notes.iterdir()] == [result.text], "one process in all"


def test_without_one_an_action_starts_its_own(workspace: Workspace, notes: Path) -> None:
    first, second = act(workspace, REQUEST), act(workspace, REQUEST)
    assert {path.name for path in notes.iterdir()} == {first.text, second.text}


def test_a_process_that_says_nothing_is_a_refusal(workspace: Workspace, notes: Path) -> None:
    result = act(workspace, REQUEST.model_copy(update={"model": "other"}))
    assert (result.done, "log of this page's service" in result.text) == (False, True)
