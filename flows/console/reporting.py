"""Progress of a loop: a live display in a terminal, plain lines elsewhere, Prefect's log in a worker."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from tasks.loop.loop import Reporter
from tasks.prefect.progress import ProgressArtifact

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

MARKS = {"run": "…", "done": "=", "ok": "+", "failed": "!", "stopped": "!"}
LINE_INTERVAL_S = 2.0
LEVELS = {"failed": logging.ERROR, "stopped": logging.WARNING}
_current: Reporter | None = None


def use(reporter: Reporter | None) -> None:
    """Set the reporter of all loops in this process."""
    global _current
    _current = reporter


def current() -> Reporter:
    """Return the current reporter; by default a reporter to Prefect's run logger."""
    return _current or PrefectReporter()


def for_terminal() -> Reporter:
    """Return a live display if standard error is a terminal, else a reporter of plain lines."""
    return LiveReporter() if sys.stderr.isatty() else LineReporter()


class PrefectReporter:
    """Reports to the log of the Prefect run, and shows the progress of a step as its artifact.

    What it needs of Prefect it takes when a step begins: trials report from threads that Prefect does not know.
    """

    def __init__(self) -> None:
        self._log: Any = None
        self._artifact: ProgressArtifact | None = None
        self._last = 0.0

    def step(self, name: str, state: str, detail: str = "") -> None:
        """Log a line when a step begins or ends."""
        self._log = _logger()
        if state == "run":
            self._artifact = _progress_artifact(name)
        words = {"run": "begins", "done": "is up to date", "ok": "took", "failed": "failed:", "stopped": "was stopped:"}
        self._log.log(LEVELS.get(state, logging.INFO), f"{name} {words[state]} {detail}".rstrip())

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        """Log a line at most every `LINE_INTERVAL_S`, and always the last one."""
        if self._artifact is not None:
            self._artifact.show(count, total, f"{name}: {count} of {total}: {detail}")
        if count >= total or time.monotonic() - self._last > LINE_INTERVAL_S:
            self._last = time.monotonic()
            (self._log or _logger()).info("%s %d/%d %s", name, count, total, detail)

    def note(self, text: str) -> None:
        """Log a line."""
        (self._log or _logger()).info(text)


class TwoReporters:
    """Reports to a terminal and to Prefect.

    Args:
        first: The terminal's.
        second: Prefect's.
    """

    def __init__(self, first: Reporter, second: Reporter) -> None:
        self._both = (first, second)

    def step(self, name: str, state: str, detail: str = "") -> None:
        """Pass the state of a step on."""
        for reporter in self._both:
            reporter.step(name, state, detail)

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        """Pass the progress of a step on."""
        for reporter in self._both:
            reporter.progress(name, count, total, detail)

    def note(self, text: str) -> None:
        """Pass a line on."""
        for reporter in self._both:
            reporter.note(text)


class LineReporter:
    """Prints plain lines on standard error, for progress at most every two seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def step(self, name: str, state: str, detail: str = "") -> None:
        """Print a line when a step begins and when it ends."""
        words = {"run": "...", "done": "up to date", "ok": "done", "failed": "FAILED", "stopped": "STOPPED"}[state]
        self._say(f"{name:<18} {words} {detail}".rstrip())

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        """Print a line at most every `LINE_INTERVAL_S`, and always the last one."""
        if count >= total or time.monotonic() - self._last > LINE_INTERVAL_S:
            self._last = time.monotonic()
            self._say(f"{name:<18} {count}/{total} {detail}".rstrip())

    def note(self, text: str) -> None:
        """Print a line."""
        self._say(text)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - this is the display


class LiveReporter:
    """Shows rich's live display: finished steps as lines, the running step with a bar below."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._console = Console(stderr=True)
        self._progress: Progress = RichProgress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description:<18}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}"),
            console=self._console,
            transient=True,
        )
        self._task: TaskID | None = None

    def step(self, name: str, state: str, detail: str = "") -> None:
        """Begin the bar of a step, or replace it by a line."""
        if state == "run":
            self._progress.start()
            self._task = self._progress.add_task(name, total=None, detail="")
            return
        if self._task is not None and state != "done":
            self._progress.remove_task(self._task)
            self._task = None
            self._progress.stop()
        colours = {"done": "dim", "ok": "green", "failed": "red", "stopped": "yellow"}
        words = "up to date" if state == "done" else detail
        self._console.print(f"[{colours[state]}]{MARKS[state]} {name:<18}[/] {words}", highlight=False)

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.update(self._task, completed=count, total=total, detail=detail)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(f"  {text}", style="dim", highlight=False, markup=False)


def _progress_artifact(step: str) -> ProgressArtifact | None:
    """Return the artifact of the task that runs here; None outside of a task."""
    from prefect.runtime import flow_run, task_run

    return ProgressArtifact(f"{step}-progress", flow_run.id, task_run.id) if flow_run.id and task_run.id else None


def _logger() -> Any:
    from prefect import get_run_logger
    from prefect.exceptions import MissingContextError

    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("loopline")
