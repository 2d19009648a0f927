"""Asking for a loop from the command line leaves an event, whether the platform is up or not."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from flows.commands.trigger import command
from tasks.runtime.events import waiting
from tests.conftest import MakeProject


def run(*arguments: str) -> str:
    ended = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_each_word_of_a_person_counts(make_project: MakeProject) -> None:
    project = make_project("tiny")
    assert "tiny: new codes" in run("tiny", "--reason", "new codes")
    told = json.loads(run("tiny", "--json"))
    assert told["waiting"] == 2
    assert told["signals"][0]["kind"] == "person"
    assert waiting(project.workspace) == 2


@pytest.mark.parametrize("arguments", [("--if-grown",), ("--if-grown", "--json")])
def test_a_source_that_did_not_grow_asks_for_nothing(make_project: MakeProject, arguments: tuple[str, ...]) -> None:
    project = make_project("tiny")
    run("tiny", *arguments)
    assert waiting(project.workspace) == 0
