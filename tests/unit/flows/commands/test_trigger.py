"""Asking for a loop from the command line leaves an event, whether the platform is up or not."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from flows.commands.trigger import command
from models.errors import UsageError
from tasks.prefect.events import waiting
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


def test_an_event_that_waits_is_said_to_be_asked_again_while_the_platform_is_up(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project("tiny")
    for note, words in (
        (None, "(events that wait: 1); nothing is lost. Cure: `loopline up`"),
        ({"socket": ""}, "(events that wait: 2); it is asked again by itself. Cure: `loopline deploy`"),
    ):
        monkeypatch.setattr("tasks.platform.services.supervisor", lambda _, note=note: note)
        assert words in CliRunner().invoke(command, ("tiny",), catch_exceptions=False).stderr


@pytest.mark.parametrize("arguments", [("--if-grown",), ("--if-grown", "--json")])
def test_a_source_that_did_not_grow_asks_for_nothing(make_project: MakeProject, arguments: tuple[str, ...]) -> None:
    project = make_project("tiny", "retrain: {on: [new_data]}\n")
    run("tiny", *arguments)
    assert waiting(project.workspace) == 0


@pytest.mark.parametrize("arguments", [("--kind", "new_data"), ("--if-grown",)])
def test_what_nobody_hears_is_refused_with_the_cure(make_project: MakeProject, arguments: tuple[str, ...]) -> None:
    project = make_project("tiny", "retrain: {on: [decay]}\n")
    with pytest.raises(UsageError, match=r"retrain\.on: names decay, so nothing listens for new_data: add new_data"):
        run("tiny", *arguments)
    assert waiting(project.workspace) == 0
    assert "a person asked" in run("tiny", "--kind", "person")
