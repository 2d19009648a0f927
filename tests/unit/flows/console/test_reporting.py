"""How a loop is seen: lines where there is no terminal, a display where there is one, Prefect's log in a worker."""

import io
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from flows.console import reporting
from flows.console.reporting import LineReporter, LiveReporter, PrefectReporter, TwoReporters


@pytest.fixture(autouse=True)
def _none_in_use() -> Iterator[None]:
    yield
    reporting.use(None)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(reporting, "time", made)
    return made


def test_lines_say_what_begins_and_how_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineReporter()
    lines.step("ingest", "done")
    lines.step("train", "run")
    lines.step("train", "ok", "3.2 s")
    lines.step("judge", "failed", "DataError")
    lines.note("logging waits")
    out, err = capsys.readouterr()
    assert out == "", "standard output is for what a script reads"
    assert err.splitlines() == [
        f"{'ingest':<18} up to date",
        f"{'train':<18} ...",
        f"{'train':<18} done 3.2 s",
        f"{'judge':<18} FAILED DataError",
        "logging waits",
    ]


def test_progress_comes_now_and_then_and_at_the_end(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    lines = LineReporter()
    for done in range(1, 101):
        clock.now += 0.1
        lines.progress("train", done, 100, "val_loss 0.5")
    shown = capsys.readouterr().err.splitlines()
    assert 4 <= len(shown) <= 7
    assert shown[-1] == f"{'train':<18} 100/100 val_loss 0.5"


def test_the_display_takes_everything_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    live = LiveReporter()
    live.progress("search", 1, 3)
    live.step("ingest", "done")
    live.step("train", "run")
    live.progress("train", 1, 3, "val_loss [0.5]")
    live.note("[bold]as it is[/bold]")
    live.step("train", "ok", "3.2 s")
    live.step("judge", "run")
    live.step("judge", "failed", "DataError")
    shown = out.getvalue()
    assert "[bold]as it is[/bold]" in shown
    assert all(word in shown for word in ("ingest", "up to date", "3.2 s", "DataError"))


def test_a_terminal_gets_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(reporting.for_terminal(), LineReporter)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(reporting.for_terminal(), LiveReporter)


def test_the_reporter_in_use_is_the_one_that_was_set() -> None:
    assert isinstance(reporting.current(), PrefectReporter)
    lines = LineReporter()
    reporting.use(lines)
    assert reporting.current() is lines


def test_prefects_log_without_a_run_is_pythons(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "_logger", lambda: logging.getLogger("loopline"))
    log: Any = PrefectReporter()
    with caplog.at_level(logging.INFO, "loopline"):
        log.step("ingest", "done")
        log.step("train", "run")
        for count in range(1, 4):
            log.progress("train", count, 3, "x")
        log.note("a note")
        log.step("train", "failed", "DataError")
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "ingest is up to date",
        "train begins",
        "train 1/3 x",
        "train 3/3 x",
        "a note",
        "train failed: DataError",
    ]
    assert caplog.records[-1].levelno == logging.ERROR


def test_two_reporters_get_the_same(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    both = TwoReporters(LineReporter(), LineReporter())
    both.step("train", "run")
    both.progress("train", 3, 3, "x")
    both.note("a note")
    lines = capsys.readouterr().err.splitlines()
    assert lines[::2] == lines[1::2] == [f"{'train':<18} ...", f"{'train':<18} 3/3 x", "a note"]
