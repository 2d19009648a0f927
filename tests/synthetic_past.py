"""A synthetic world of twelve months in which the concept jumps in the fifth; models know what they were given."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from models.backtest.contest import Score
from models.backtest.periods import LabelClock, Period, PeriodRule, RowRange, cut_periods, parse_date
from models.backtest.policies import Policy, plain
from models.backtest.regret import Backtest, BacktestPeriod, policy_regrets, recommended, summary
from models.backtest.replay import PolicyHistory, TrainingOutcome, VerdictOutcome, replay
from models.project_spec.monitor_and_retrain import Retrain
from models.triggers.signal import Signal

DAY = 86_400.0
JUMP = parse_date("2020-05-01")


@dataclass
class Synthetic:
    """A model is `first-stop`; it is good (.8) in periods like those that most of its rows are of, else bad (.6)."""

    clock: LabelClock
    decays: bool = True
    drifts: bool = False
    fails_at: frozenset[int] = frozenset()
    trained: list[RowRange] = field(default_factory=list)
    predicted: list[tuple[str, Period]] = field(default_factory=list)
    watched: list[tuple[Period, Period, int]] = field(default_factory=list)

    def train(self, rows: RowRange, newest: int | None, start: str | None) -> TrainingOutcome:
        self.trained.append(rows)
        first = max(0, rows.stop - (newest or rows.stop))
        if rows.stop in self.fails_at:
            return TrainingOutcome("", 0.0, "the loss is not finite")
        return TrainingOutcome(f"{first}-{rows.stop}", 10.0)

    def is_new(self, model: str) -> bool:
        first, stop = map(int, model.split("-"))
        newest = self.clock.times[max(first, stop - 40) : stop]
        return len(newest) > 0 and float(np.mean(newest >= JUMP)) > 0.5

    def value(self, model: str, period: Period) -> float:
        return 0.8 if self.is_new(model) == (period.begin >= JUMP) else 0.6

    def judge(self, challenger: str, champion: str | None, best: str | None = None) -> VerdictOutcome:
        return VerdictOutcome(True, ["Promoted."])

    def predict(self, model: str, period: Period) -> None:
        self.predicted.append((model, period))

    def monitor(self, model: str, since: Period, now: Period, labelled: int) -> list[Signal]:
        self.watched.append((since, now, labelled))
        found = []
        if self.decays and self.value(model, now) < 0.7:
            found.append(Signal(id=f"decay:{model}:{now.name}", kind="decay", at=now.end, reason="metric .6 under .8"))
        if self.drifts:
            found.append(Signal(id=f"drift:{model}:{now.name}", kind="drift", at=now.end, reason="the score drifts"))
        return found


@dataclass
class Past:
    """Twelve months of daily rows, ten a day, and what a policy makes of them."""

    clock: LabelClock
    periods: list[Period]

    def world(self, **what: object) -> Synthetic:
        return Synthetic(self.clock, **what)  # type: ignore[arg-type]

    def course(self, policy: str | Policy, world: Synthetic | None = None, **rules: object) -> PolicyHistory:
        own = Retrain.model_validate(rules)
        chosen = plain(policy, own) if isinstance(policy, str) else policy
        return replay(chosen, self.periods, 2, self.clock, world or self.world())

    def scores(self, courses: list[PolicyHistory], noise: float = 0.01) -> dict[tuple[str, str], Score]:
        world = self.world()
        found = {}
        for course in courses:
            for step, period in zip(course.steps, self.periods[2:], strict=True):
                drawn = np.random.default_rng(period.first).normal(0, noise, 200)
                value = world.value(step.model, period)
                found[step.model, step.period] = Score(value, value + drawn, period.num_rows)
        return found


def jumping_past() -> Past:
    """Twelve months of 2020, ten rows a day."""
    clock = LabelClock(parse_date("2020-01-01") + np.arange(3660) * DAY / 10)
    return Past(clock, cut_periods(clock, PeriodRule(calendar="month")))


def made_backtest(policies: tuple[str, ...] = ("never", "monthly", "decay", "every")) -> Backtest:
    """A backtest of the synthetic world whose concept jumps in May."""
    past = jumping_past()
    courses = [past.course(name, rows=300) for name in policies]
    standing = policy_regrets(courses, past.scores(courses), sign=1)
    return Backtest(
        project="synthetic",
        metric="accuracy",
        direction="maximize",
        confidence=0.95,
        margin=0.01,
        cut="month",
        first_rows=past.periods[1].stop,
        periods=[BacktestPeriod(name=p.name, begin=p.begin, end=p.end, rows=p.num_rows) for p in past.periods[2:]],
        courses=courses,
        policy_regrets=standing,
        recommended=recommended(standing, 0.01).policy,
        summary=summary(recommended(standing, 0.01), "accuracy"),
        notes=["every training took the spec's own settings"],
        trained=9,
        made_at=1.6e9,
    )
