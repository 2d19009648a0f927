"""The page of a loop: steps, trials, curves and log as it runs, the verdict at its end; one template, live or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from models.pipeline.steps import BY_NAME
from models.report import pages
from models.report.facts import LoopState
from models.report.line_chart import Chart, line_chart, lines_of
from models.report.loop_progress import Curves, LoopProgress, StepProgress
from models.report.overview_page import FILTERS, STATE_COLOURS, Link

STEP_WORDS = {
    "run": ("running", "green"),
    "done": ("up to date", ""),
    "ok": ("done", "green"),
    "failed": ("failed", "amber"),
    "stopped": ("stopped", "amber"),
}
"""How the state of a step is called, and its colour."""
COST_NAMES = {
    "samples_per_s": "samples a second, all ranks",
    "tokens_per_s": "tokens a second, all ranks",
    "peak_memory_mb": "most memory of a rank, MB",
    "data_wait_s": "wait for data, s an epoch",
    "device_s": "device seconds an epoch, all ranks",
}
MOST_TRIALS = 50


@dataclass(frozen=True)
class LoopFacts:
    """What is stored of a loop beside its lines.

    Attributes:
        state: `killed` if its process is gone.
        usual: Seconds of each step when it last ran, of whichever loop.
        version: The version that it registered, or judged; empty for none.
        can_stop: Whether it runs.
        can_retry: Whether it is the project's last loop and ended early: a run continues it.
    """

    loop_id: str
    project: str
    state: LoopState
    began: float
    trigger: str = ""
    host: str = ""
    step: str = ""
    ended: float | None = None
    outcome: str = ""
    reason: str = ""
    device_seconds: float | None = None
    version: str = ""
    links: Sequence[Link] = ()
    usual: Mapping[str, float] = field(default_factory=dict)
    can_stop: bool = False
    can_retry: bool = False


def render_loop(loop: LoopFacts, progress: LoopProgress, now: float, logout: str = "") -> str:
    """Return the whole page; of a loop that runs it renews itself where scripts run."""
    return _render("loop", loop, progress, now, logout=logout)


def render_live(loop: LoopFacts, progress: LoopProgress, now: float) -> str:
    """Return the part of the page that changes as the loop runs."""
    return _render("loop_live", loop, progress, now)


def step_table(progress: LoopProgress) -> list[StepProgress | str]:
    """Return the steps in order; a name stands for one that was not reached."""
    return [progress.steps.get(name, name) for name in BY_NAME]


def charts(progress: LoopProgress) -> list[Chart]:
    """Return the curves by epoch, losses in one chart and metrics in another, and the load of the machine."""
    whose, curves = progress.shown_curves()
    named = {"Loss": _names(curves, is_loss=True), "Metric on validation": _names(curves, is_loss=False)}
    drawn = {f"{title} of {whose}": lines_of(curves, names) for title, names in named.items() if names}
    charted = [Chart(title, line_chart(lines, title, "epoch"), lines) for title, lines in drawn.items()]
    if machine := lines_of(progress.machine, [*progress.machine]):
        charted.append(Chart("The machine", line_chart(machine, "The machine", "seconds"), machine))
    return charted


def _names(curves: Curves, *, is_loss: bool) -> list[str]:
    return [name for name in curves if name.endswith("loss") == is_loss]


def _render(template: str, loop: LoopFacts, progress: LoopProgress, now: float, logout: str = "") -> str:
    remaining_s = progress.seconds_left(now, loop.usual, BY_NAME) if loop.can_stop else None
    return pages.render(
        f"overview/{template}.html.j2",
        filters=FILTERS,
        round=loop,  # `loop` is a word of the templates
        progress=progress,
        now=now,
        logout=logout,
        colour=STATE_COLOURS.get(loop.state, ""),
        steps=step_table(progress),
        step_words=STEP_WORDS,
        charts=charts(progress),
        costs={name: progress.costs[key] for key, name in COST_NAMES.items() if key in progress.costs},
        trials=[*progress.trials.values()][-MOST_TRIALS:],
        ends=now + remaining_s if remaining_s is not None else None,
        hour=lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S"),
    )
