"""`loopline up --foreground`: it stays, and the platform ends with it; what comes up is tests/e2e's."""

import os
import signal
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from flows.commands import up
from flows.prefect import platform
from tasks.host.workspace import Workspace


@pytest.fixture
def ended(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Workspace]]:
    """The workspaces whose platform was taken down."""
    found: list[Workspace] = []
    before = {number: signal.getsignal(number) for number in up.ENDING}
    monkeypatch.setattr(platform, "bring_up", lambda *_: None)
    monkeypatch.setattr(platform, "take_down", lambda workspace, _: found.append(workspace))
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", up.ENDING)
def test_a_signal_ends_the_platform(
    ended: list[Workspace], workspace: Workspace, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(up, "supervisor", lambda _: os.kill(os.getpid(), number) or True)
    done = CliRunner().invoke(up.command, ["--foreground"])
    assert (done.exit_code, ended) == (0, [workspace])
    assert "the next `loopline up` continues the running loops" in done.output


def test_a_signal_while_it_comes_up_ends_what_has_come_up(
    ended: list[Workspace], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "bring_up", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assert CliRunner().invoke(up.command, ["--foreground"]).exit_code == 0
    assert ended == [workspace]


def test_it_ends_though_nobody_reads_what_it_says(
    ended: list[Workspace], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(up, "_note", gone)
    monkeypatch.setattr(up, "supervisor", lambda _: os.kill(os.getpid(), signal.SIGHUP) or True)
    assert CliRunner().invoke(up.command, ["--foreground"]).exit_code == 0
    assert ended == [workspace]


def test_it_ends_when_the_platform_was_taken_down_elsewhere(
    ended: list[Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "supervisor", lambda _: None)
    assert CliRunner().invoke(up.command, ["--foreground"]).exit_code == 0
    assert ended == []
