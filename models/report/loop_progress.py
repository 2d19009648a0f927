"""The progress of a loop: the numbered lines that it recorded, folded into steps, trials, curves and a log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LOOP_RUN = "loop"
LOG_LINES = 200
"""The number of last lines of the log that are kept."""
SHARES = ("samples_per_s", "tokens_per_s", "peak_memory_mb", "data_wait_s", "device_s")
"""What an epoch cost, of the values that it reports."""
MACHINE = {"system/cpu_utilization_percentage": "CPU, %", "system/system_memory_usage_percentage": "memory, %"}
"""What is sampled of the loop's machine, and how the page calls it."""
STATE_WORDS = {"done": "up to date", "ok": "done", "failed": "failed", "stopped": "stopped", "run": "begins"}

Curves = dict[str, dict[int, float]]
"""Name of a value -> epoch -> value."""


@dataclass
class StepProgress:
    """A step of the loop: `state` is run, done (before), ok, failed or stopped; times are Unix seconds."""

    name: str
    state: str
    began: float
    ended: float | None = None
    count: int = 0
    total: int = 0
    detail: str = ""

    def seconds(self, now: float) -> float:
        """Return how long it took, or has run so far."""
        return max(0.0, (now if self.ended is None else self.ended) - self.began)


@dataclass
class TrialProgress:
    """A trial of the search; `state` is running, complete, pruned or fail."""

    run: str
    began: float
    params: dict[str, str] = field(default_factory=dict)
    state: str = "running"
    value: float | None = None
    reason: str = ""
    ended: float | None = None
    curves: Curves = field(default_factory=dict)

    @property
    def number(self) -> str:
        """Its number in the study."""
        return self.run.removeprefix("trial-")

    @property
    def epoch(self) -> int:
        """Its last epoch; 0 before the first."""
        return max((max(points) for points in self.curves.values()), default=0)


@dataclass
class LogLine:
    """A line of the log; `time` in Unix seconds."""

    time: float
    text: str


@dataclass
class LoopProgress:
    """What is known of a loop from its lines up to `number`. `add` goes on where it ended."""

    number: int = 0
    steps: dict[str, StepProgress] = field(default_factory=dict)
    trials: dict[str, TrialProgress] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    machine: Curves = field(default_factory=dict)
    """By seconds since the loop's first line, in place of epochs."""
    began: float = 0.0
    tags: dict[str, str] = field(default_factory=dict)
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG_LINES))

    def add(self, lines: Mapping[int, Mapping[str, Any]]) -> None:
        """Add further lines of the outbox, by number in their order.

        A line that was added before, such as an epoch that a resumed training repeats, changes nothing.
        """
        for number, line in lines.items():
            self.number = max(self.number, number)
            if take := _TAKE.get(line["op"]):
                take(self, line)

    @property
    def current(self) -> StepProgress | None:
        """The step that runs, or None."""
        return next((step for step in reversed(self.steps.values()) if step.state == "run"), None)

    def shown_curves(self) -> tuple[str, Curves]:
        """Return the curves to show and whose they are: the training's, else those of the last trial with an epoch."""
        if self.curves:
            return "the training", self.curves
        trial = next((trial for trial in reversed(self.trials.values()) if trial.curves), None)
        return (f"trial {trial.number}", trial.curves) if trial else ("", {})

    def seconds_left(self, now: float, usual: Mapping[str, float], order: Iterable[str]) -> float | None:
        """Estimate how long the loop still takes: the running step by its progress, the others as they took last.

        Args:
            now: Unix time, seconds.
            usual: The seconds that a step took when it last ran, by step; one that never did is left out.
            order: All steps.

        Returns:
            Seconds; None while nothing tells how long the running step takes.
        """
        step = self.current
        if step is None:
            return None
        spent = step.seconds(now)
        if step.count and step.total:
            remaining_s = spent * (step.total - step.count) / step.count
        elif step.name in usual:
            remaining_s = max(0.0, usual[step.name] - spent)
        else:
            return None
        return remaining_s + sum(usual.get(name, 0.0) for name in order if name not in self.steps)


def _step(progress: LoopProgress, line: Mapping[str, Any]) -> None:
    moment, name, state = line["at_ms"] / 1000, line["step"], line["state"]
    if state == "progress":
        _advance(progress, line)
    elif state in ("run", "done"):
        progress.steps.pop(name, None)  # the order is that of this attempt
        progress.steps[name] = StepProgress(name, state, moment, moment if state == "done" else None)
    elif step := progress.steps.get(name):
        step.state, step.ended, step.detail = state, moment, line["text"] if state == "failed" else ""
    if text := _words(line):
        progress.log.append(LogLine(moment, text))


def _advance(progress: LoopProgress, line: Mapping[str, Any]) -> None:
    """Count the progress for the running step: a training in stages, or of members, names these instead."""
    if step := progress.current:
        step.count, step.total, step.detail = line["count"], line["total"], line["text"]


def _words(line: Mapping[str, Any]) -> str:
    state, step, text = line["state"], line["step"], line["text"]
    if state == "note":
        return str(text)
    if state == "progress":
        return f"{step} {line['count']}/{line['total']} {text}".rstrip()
    return f"{step}: {STATE_WORDS.get(state, state)} {text}".rstrip()


def _begin(progress: LoopProgress, line: Mapping[str, Any]) -> None:
    if line["run"] == LOOP_RUN:
        progress.began = progress.began or line["at_ms"] / 1000
    else:
        progress.trials.setdefault(line["run"], TrialProgress(line["run"], line["at_ms"] / 1000))


def _params(progress: LoopProgress, line: Mapping[str, Any]) -> None:
    if trial := progress.trials.get(line["run"]):
        trial.params |= line["params"]


def _metrics(progress: LoopProgress, line: Mapping[str, Any]) -> None:
    trial, epoch = progress.trials.get(line["run"]), line["step"]
    if trial is not None and "value" in line["metrics"]:
        trial.value = line["metrics"]["value"]
    if not epoch:
        return
    curves = trial.curves if trial else progress.curves if line["run"] == LOOP_RUN else {}
    for name, value in line["metrics"].items():
        if name in SHARES:
            progress.costs[name] = value
        elif name in MACHINE:
            seconds = round(line["at_ms"] / 1000 - progress.began)
            progress.machine.setdefault(MACHINE[name], {})[seconds] = value
        elif _is_curve(name):
            curves.setdefault(name, {})[epoch] = value


def _is_curve(name: str) -> bool:
    """Return whether a value of an epoch is a loss or a metric on validation, of a stage or member too.

    A standard error has another scale than its metric.
    """
    last = name.rpartition(".")[2]
    return last.endswith("loss") or ("val_" in last and not last.endswith("_se"))


def _tags(progress: LoopProgress, line: Mapping[str, Any]) -> None:
    if trial := progress.trials.get(line["run"]):
        trial.state = line["tags"].get("loopline.trial_state", trial.state)
        trial.reason = line["tags"].get("loopline.reason", trial.reason)
    elif line["run"] == LOOP_RUN:
        progress.tags |= line["tags"]


def _end(progress: LoopProgress, line: Mapping[str, Any]) -> None:
    if trial := progress.trials.get(line["run"]):
        trial.ended = line["at_ms"] / 1000
        trial.state = "stopped" if trial.state == "running" else trial.state


def _stop(progress: LoopProgress, line: Mapping[str, Any]) -> None:
    progress.log.append(LogLine(line["at_ms"] / 1000, f"{line['person']} asked that it stops"))


_TAKE = {
    "log": _step,
    "run": _begin,
    "params": _params,
    "metrics": _metrics,
    "tags": _tags,
    "end": _end,
    "stop": _stop,
}
"""What is done with a line, by its operation; others say nothing about progress."""
