"""Replay of the past under a policy. Each period: predict, receive labels, monitor, decide, perhaps retrain.

A pure function over a `ReplayBackend`, which trains, predicts, monitors and judges. The live policy's own `decide`
decides; only the clock is the data's. Decisions are made at the end of each period: a model trained there serves from
the next period on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import Field

from models.backtest.periods import LabelClock, Period, RowRange, iso
from models.backtest.policies import Policy
from models.errors import TrainingError
from models.frozen_model import FrozenModel
from models.project_spec.schedule import parse
from models.triggers.policy import decide
from models.triggers.signal import Decision, Outcome, PastLoop, ProjectHistory, Signal

# Signals of broken data are decided before those of the metric, and these before the schedule.
_ORDER = ("broken_data", "decay", "drift", "schedule", "new_data", "person")


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of a training: the model's key and its cost; `failure` says why there is no model."""

    model: str
    device_seconds: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class VerdictOutcome:
    """The result of the verdict on a challenger; `is_best`: it becomes the best champion so far if it is promoted."""

    promoted: bool
    reasons: list[str] = field(default_factory=list)
    is_best: bool = True


class ReplayBackend(Protocol):
    """The operations that a replay needs. Each call gets the end of the known past and may read nothing after it."""

    def train(self, rows: RowRange, newest: int | None, start: str | None) -> TrainingOutcome:
        """Train a model on the labelled `rows`; of their training rows only the `newest` are used.

        It starts with the weights of the model `start` if there is one.
        """
        ...

    def judge(self, challenger: str, champion: str | None, best: str | None) -> VerdictOutcome:
        """Return the verdict on the challenger's held-out recent rows; `best` is the best champion so far."""
        ...

    def predict(self, model: str, period: Period) -> None:
        """Predict the rows of a period, before any of their labels is known."""
        ...

    def monitor(self, model: str, since: Period, now: Period, labelled: int) -> list[Signal]:
        """Return the signals of monitoring `model` at the end of `now`, over its serving periods from `since` on.

        Only the labels of the first `labelled` rows are known.
        """
        ...


class ReplayedLoop(FrozenModel):
    """A loop that was run in the replay."""

    at: float
    period: str = Field(description="At whose end it was run.")
    trigger: str
    why: str = Field(description="The signal's reason.")
    rows: int = Field(description="Labelled rows that were known: the oldest so many.")
    newest: int | None = Field(None, description="Of the training rows among them only so many were trained on.")
    model: str = ""
    outcome: Outcome
    reasons: list[str] = Field(default_factory=list, description="Of the verdict, or why it failed.")
    device_seconds: float = 0.0


class ReplayedPeriod(FrozenModel):
    """One period under a policy: the model that served it, and the decisions at its end."""

    period: str
    model: str
    age: int = Field(description="Periods that the model had served before this one.")
    decisions: list[Decision] = Field(default_factory=list)
    loop: ReplayedLoop | None = None


class PolicyHistory(FrozenModel):
    """The replayed history under one policy."""

    policy: str
    rule: str = Field(description="The policy in words.")
    first: ReplayedLoop = Field(
        description="The loop that made the first champion; its cost is common to all policies."
    )
    steps: list[ReplayedPeriod]

    @property
    def loops(self) -> list[ReplayedLoop]:
        """Loops after the first."""
        return [step.loop for step in self.steps if step.loop]

    @property
    def device_seconds(self) -> float:
        """Device-seconds of the loops after the first."""
        return sum(loop.device_seconds for loop in self.loops)

    @property
    def waits(self) -> list[Decision]:
        """Decisions not to retrain."""
        return [decision for step in self.steps for decision in step.decisions if decision.action == "wait"]


def replay(
    policy: Policy, periods: Sequence[Period], num_first: int, clock: LabelClock, world: ReplayBackend
) -> PolicyHistory:
    """Replay `periods` under a policy.

    No decision is made at the end of the last period, because nothing could show whether it was good.

    Args:
        policy: The retraining rule.
        periods: The past, oldest first.
        num_first: How many of them train the first champion.
        clock: Times of the rows and of their labels.
        world: Trains, predicts, monitors, judges.
    """
    player = _Simulation(policy, clock, world)
    first = player.begin(periods[num_first - 1])
    steps = [player.live(period, is_last=period is periods[-1]) for period in periods[num_first:]]
    return PolicyHistory(policy=policy.name, rule=policy.text, first=first, steps=steps)


class _Simulation:
    """The state of a simulated project under a policy."""

    def __init__(self, policy: Policy, clock: LabelClock, world: ReplayBackend) -> None:
        self._policy, self._clock, self._world = policy, clock, world
        rules = policy.rules
        self._schedule = parse(rules.schedule, rules.timezone) if rules.schedule else None
        self._champion, self._best, self._is_best = "", "", True
        self._since: Period | None = None
        self._age = 0
        self._loops: list[PastLoop] = []
        self._labels_at_loop = 0
        self._signal_ids: set[str] = set()
        self._put_off: list[tuple[float, Signal]] = []
        self._now = 0.0

    def begin(self, period: Period) -> ReplayedLoop:
        """Train the first champion at the end of `period`; it serves whatever its verdict is."""
        self._now = period.end
        signal = Signal(id="first", kind="person", at=period.end, reason="the first champion")
        loop = self._run(period, signal, None)
        if not loop.model:
            reasons = "; ".join(loop.reasons)
            raise TrainingError(
                f"backtest: the first champion could not be trained ({reasons}): correct that, or begin later (--from)"
            )
        self._take(loop.model)
        return loop

    def live(self, period: Period, is_last: bool) -> ReplayedPeriod:
        """Serve a period, then decide at its end."""
        model, age = self._champion, self._age
        self._since = self._since or period
        self._world.predict(model, period)
        self._age += 1
        decisions, loop = ([], None) if is_last else self._settle(period)
        return ReplayedPeriod(period=period.name, model=model, age=age, decisions=decisions, loop=loop)

    def _settle(self, period: Period) -> tuple[list[Decision], ReplayedLoop | None]:
        """Decide every signal at the end of a period; at most one of them starts a loop."""
        before, self._now = self._now, period.end
        decisions: list[Decision] = []
        loop: ReplayedLoop | None = None
        for signal in self._signals(period, before):
            past = self._past(loop is not None)
            decision = decide(self._policy.rules, signal, past, self._now)
            if decision.action != "wait" and loop is None:
                loop = self._run(period, signal, self._champion)
                decision = decision.model_copy(update={"loop_id": self._loops[-1].loop_id})
            elif decision.until is not None:
                self._put_off.append((decision.until, signal))
            self._signal_ids.add(signal.id)
            decisions.append(decision)
        if loop is not None and loop.outcome == "promoted":
            self._take(loop.model)
        return decisions, loop

    def _take(self, model: str) -> None:
        self._champion, self._since, self._age = model, None, 0
        self._best = model if self._is_best or not self._best else self._best

    def _signals(self, period: Period, before: float) -> list[Signal]:
        """Return the signals to decide now: those postponed until now, and new ones; each once."""
        assert self._since is not None
        labelled = self._clock.labelled(period.end)
        due = [signal for until, signal in self._put_off if until <= period.end]
        self._put_off = [(until, signal) for until, signal in self._put_off if until > period.end]
        self._signal_ids -= {signal.id for signal in due}
        fresh = [
            *self._world.monitor(self._champion, self._since, period, labelled),
            *self._scheduled(before, period.end),
            *([new_rows(period)] if "new_data" in self._policy.rules.on else []),
        ]
        signals = {signal.id: signal for signal in [*due, *fresh] if signal.id not in self._signal_ids}
        return sorted(signals.values(), key=lambda signal: (_ORDER.index(signal.kind), signal.at))

    def _scheduled(self, after: float, until: float) -> Iterable[Signal]:
        """Return one signal for all due times of the schedule: catch-up is off."""
        if self._schedule is None or (due := self._schedule.next(after)) > until:
            return []
        reason = f"{self._policy.rules.schedule} came round"
        return [Signal(id=f"schedule {due:.0f}", kind="schedule", at=due, reason=reason)]

    def _past(self, has_run: bool) -> ProjectHistory:
        running = self._loops[-1].loop_id if has_run else None
        new = self._clock.labelled(self._now) - self._labels_at_loop
        return ProjectHistory(loops=self._loops, new_labels=new, running=running, signals=frozenset(self._signal_ids))

    def _run(self, period: Period, signal: Signal, champion: str | None) -> ReplayedLoop:
        rules, rows = self._policy.rules, RowRange(0, self._clock.labelled(self._now))
        newest = rules.rows if champion else None  # a person starts the first loop, not the policy
        trained = self._world.train(rows, newest, champion if rules.start == "champion" else None)
        judged = self._world.judge(trained.model, champion, self._best or None) if not trained.failure else None
        self._is_best = judged is not None and judged.is_best
        outcome: Outcome = "failed" if judged is None else "promoted" if judged.promoted else "kept"
        self._labels_at_loop = rows.stop
        self._loops.append(
            PastLoop(
                loop_id=f"{self._policy.name}-{len(self._loops)}",
                began=self._now,
                ended=self._now,
                outcome=outcome,
                trigger=signal.kind,
                device_seconds=trained.device_seconds,
            )
        )
        return ReplayedLoop(
            at=self._now,
            period=period.name,
            trigger=signal.kind,
            why=signal.reason,
            rows=rows.stop,
            newest=newest,
            model="" if trained.failure else trained.model,
            outcome=outcome,
            reasons=judged.reasons if judged else [trained.failure],
            device_seconds=trained.device_seconds,
        )


def new_rows(period: Period) -> Signal:
    """Return the signal that a period's rows have arrived."""
    return Signal(
        id=f"rows {period.stop}",
        kind="new_data",
        at=period.end,
        reason=f"{period.num_rows} rows came by {iso(period.end)}",
        evidence={"rows": period.num_rows, "first": period.first, "stop": period.stop},
    )
