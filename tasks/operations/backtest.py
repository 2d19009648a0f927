"""Backtest: replays the project's own past to show what other retraining policies would have done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.backtest import periods as cutting
from models.backtest.periods import LabelClock, Period, PeriodRule
from models.backtest.policies import DEFAULT, EVERY, Policy, drafted, plain
from models.backtest.regret import FEW_PERIODS, Backtest, BacktestPeriod, policy_regrets, recommended, summary
from models.backtest.replay import PolicyHistory, replay
from models.errors import UsageError
from models.files import write_json, write_text
from models.metrics.metrics import metric_of
from models.nets.catalogue import can_begin, net_name
from models.project_spec.blocks import Spec
from models.project_spec.reader import read_document
from models.sources.read import read_table
from models.training.families import nets_of, search_space
from models.training.search_space import shown, with_params
from tasks.host.locks import held
from tasks.host.workspace import Project
from tasks.loop.loop import Reporter
from tasks.loop.step_cache import StepCache
from tasks.operations.backtest_cache import FOLDER, BacktestCache, ReplayProgress
from tasks.ranks.rank_pool import RankPool

if TYPE_CHECKING:
    from models.backtest.periods import TimeOrderedRows

RESULT_FILE = "backtest.json"
PAGE_FILE = "backtest.html"
STEP = "backtest"
KEEP_S = 30 * 86_400.0
_FRESH = "trainings begin fresh: the weights that train.start names have seen what this replay must not know"


@dataclass(frozen=True)
class BacktestRequest:
    """The options of a backtest, as texts from the command line."""

    policies: Sequence[str] = ()
    begin: str | None = None
    period: str = "month"
    label_delay: str = "0"


def backtest(project: Project, overrides: Sequence[str], request: BacktestRequest, report: Reporter) -> Backtest:
    """Replay the project's past under each policy; write the result as JSON and as a page.

    Earlier trainings, predictions and verdicts come from the cache, so a killed replay continues where it stopped.

    Raises:
        UsageError: The spec, a policy or the period rule is wrong, or there is too little past data.
        DataError: The raw table is missing, or does not match the spec.
        StoreError: Another backtest of the project runs.
    """
    from models.report.backtest import render_backtest

    began = time.perf_counter()
    spec = project.spec(overrides)
    settings = _settings(project, spec)
    notes = [] if spec.train.start is None or _begins_with_champion(spec) else [_FRESH]
    spec = spec_of_trainings(spec, settings, project.folder)
    cut = cutting.parse_cut(request.period)
    project.workspace.make()
    busy = f"a backtest of {spec.name} runs already: wait for it, or end it"
    with held(project.state(spec.name) / FOLDER / "backtest.lock", lambda: busy), RankPool() as pool:
        report.step(STEP, "run")
        delay_s = cutting.parse_delay(request.label_delay)
        past = cutting.in_time_order(read_table(project.raw), spec.data, cut, delay_s)
        policies, without_weights = as_replayed(_policies(request.policies, spec, past.clock), spec)
        plan = _plan(past, cut, request, spec)
        progress = ReplayProgress(report, plan.moments(past.clock), len(policies) * len(plan.replayed))
        world = BacktestCache(project, spec, past, pool, progress)
        courses = _replayed(policies, plan, past.clock, world, progress)
        result = _weighed(project, spec, world, past, plan, courses)
        result = result.model_copy(
            update={
                "settings": settings,
                "notes": [*_settings_note(spec, settings), *notes, *without_weights, *result.notes],
                "seconds": round(time.perf_counter() - began, 3),
                "made_at": time.time(),
            }
        )
        write_json(page(project, spec.name).with_name(RESULT_FILE), result.model_dump(mode="json"))
        write_text(page(project, spec.name), render_backtest(result))
        world.prune(KEEP_S)
        report.step(STEP, "ok", f"{result.seconds:.1f} s")
    return result


def spec_of_trainings(spec: Spec, settings: Mapping[str, Any], base: Path) -> Spec:
    """Return the spec that every training of a replay follows: with the settings of a search, of one net.

    Args:
        spec: The project's.
        settings: Of a search, or those of `search.settings`.
        base: The folder of the spec.
    """
    model, train = with_params(spec.model, spec.train, search_space(spec, base=base).settings(settings))
    begins = _begins_with_champion(spec)
    changes = {
        "model": model,
        "train": train.on_one_machine().model_copy(update={"start": train.start if begins else None}),
        "retrain": spec.retrain.model_copy(update={"start": "champion"} if begins else {}),
        "search": spec.search.model_copy(update={"families": None}),  # the net is chosen
    }
    return spec.model_copy(update=changes)


def _begins_with_champion(spec: Spec) -> bool:
    return spec.train.start is not None and spec.train.start.weights == "champion"


def page(project: Project, name: str) -> Path:
    """Return the path of the last backtest's page."""
    return project.state(name) / FOLDER / PAGE_FILE


@dataclass(frozen=True)
class _Plan:
    """The periods of a replay; the first `num_first` of them train the first champion."""

    cut: PeriodRule
    periods: list[Period]
    num_first: int

    @property
    def replayed(self) -> list[Period]:
        return self.periods[self.num_first :]

    def moments(self, clock: LabelClock) -> list[int]:
        """Return the number of known labelled rows at each moment at which a policy may train."""
        return [clock.labelled(period.end) for period in self.periods[self.num_first - 1 : -1]]


def _plan(past: TimeOrderedRows, cut: PeriodRule, request: BacktestRequest, spec: Spec) -> _Plan:
    periods = cutting.without_stub(cutting.cut_periods(past.clock, cut))
    begin = cutting.parse_date(request.begin) if request.begin else None
    return _Plan(cut, periods, cutting.num_training(periods, least_rows(spec), begin))


def _replayed(
    policies: list[Policy], plan: _Plan, clock: LabelClock, world: BacktestCache, progress: ReplayProgress
) -> list[PolicyHistory]:

    courses = []
    for policy in policies:
        progress.policy = policy.name
        courses.append(replay(policy, plan.periods, plan.num_first, clock, world))
    return courses


def _weighed(
    project: Project, spec: Spec, world: BacktestCache, past: TimeOrderedRows, plan: _Plan, courses: list[PolicyHistory]
) -> Backtest:
    by_name = {period.name: period for period in plan.replayed}
    metric = metric_of(spec.goal, world.preparation(courses[0].first.model), project.folder)
    served = {(step.model, step.period) for course in courses for step in course.steps}
    scores = {(model, name): world.score(model, by_name[name], metric) for model, name in sorted(served)}
    confidence = spec.judge.confidence
    regrets = policy_regrets(courses, scores, metric.sign, confidence, spec.train.seed)
    chosen, num = recommended(regrets, spec.judge.margin or 0.0), len(plan.replayed)
    few = [f"only {num} periods were replayed: the intervals are too narrow for future periods"] * (num < FEW_PERIODS)
    return Backtest(
        project=spec.name,
        metric=metric.name,
        direction=metric.direction,
        confidence=confidence,
        margin=spec.judge.margin or 0.0,
        cut=plan.cut.text,
        label_delay_s=past.clock.delay_s,
        first_rows=plan.periods[plan.num_first - 1].stop,
        periods=[BacktestPeriod(name=p.name, begin=p.begin, end=p.end, rows=p.num_rows) for p in plan.replayed],
        courses=courses,
        policy_regrets=regrets,
        recommended=chosen.policy,
        summary=summary(chosen, metric.name),
        notes=[*past.notes, *_remainder_note(past, plan), *world.notes, *_first_champion_note(courses[0]), *few],
        trained=world.trained,
        reused=world.reused,
    )


def least_rows(spec: Spec) -> int:
    """Return the number of rows that gives the first verdict its minimum sample."""
    return max(50, round(spec.judge.min_samples / spec.data.split.test))


def _settings(project: Project, spec: Spec) -> dict[str, Any]:
    """Return the best settings of the last search of this spec's nets; without one, or without a search, the spec's."""
    if spec.search.trials == 0:
        return dict(spec.search.settings or {})
    record = StepCache(project, spec).records.latest("search")
    if record is None or record.parts.get("spec:model.net") != spec.model.net:
        return {}
    params: dict[str, Any] = record.result.get("params", {})
    return params if nets_of(spec, params) else {}


def _settings_note(spec: Spec, settings: dict[str, Any]) -> list[str]:
    if settings:
        listing = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in shown(settings).items()
        )
        words = (
            f"every training took the settings of the last search ({listing}), which has seen the whole past: the "
            "weights know no future, these settings do; -s search.trials=0 takes the spec's own"
        )
        return [words, *_search_note(spec)]
    return ["every training took the spec's own settings", *(_search_note(spec) if spec.search.trials else [])]


def _search_note(spec: Spec) -> list[str]:
    if spec.retrain.search == "reuse":
        return []
    return [f"device-seconds are of the trainings alone: a live loop searches again, {spec.search.trials} trials each"]


def _remainder_note(past: TimeOrderedRows, plan: _Plan) -> list[str]:
    rest = past.table.num_rows - plan.periods[-1].stop
    return [f"{rest} rows after {plan.periods[-1].name} were left out: too few for a period"] if rest else []


def _first_champion_note(course: PolicyHistory) -> list[str]:
    if course.first.outcome == "promoted":
        return []
    return [f"the first champion serves though its verdict says: {course.first.reasons[0]}"]


def _policies(names: Sequence[str], spec: Spec, clock: LabelClock) -> list[Policy]:
    """Return the requested policies and `every`, the reference for regret, without duplicates.

    Raises:
        UsageError: A policy or file does not exist, or two policies have the same name.
    """
    chosen = list(dict.fromkeys([*(names or DEFAULT), EVERY]))
    policies = [_policy(name, spec, clock) for name in chosen]
    twice = {
        policy.name for policy in policies if sum(policy.name == other_policy.name for other_policy in policies) > 1
    }
    if twice:
        raise UsageError(f"--policy: two policies are called {', '.join(sorted(twice))}: rename a file")
    return policies


def as_replayed(policies: list[Policy], spec: Spec) -> tuple[list[Policy], list[str]]:
    """Return the policies as they can be replayed, and a note: trees and others have no weights to begin with.

    Args:
        policies: As they were requested.
        spec: With the net that every training of the replay fits.
    """
    net = net_name(spec.model.net, spec.data.kind)
    if can_begin(net, net) or all(policy.rules.start == "scratch" for policy in policies):
        return policies, []
    fresh = [Policy(policy.name, policy.rules.model_copy(update={"start": "scratch"})) for policy in policies]
    return fresh, [f"trainings begin fresh: the champion is of model.net {net} and has no weights to begin with"]


def _policy(name: str, spec: Spec, clock: LabelClock) -> Policy:
    if not name.endswith((".yaml", ".yml")):
        return plain(name, spec.retrain, clock.has_calendar)
    path = Path(name).expanduser()
    return drafted(path.stem, read_document(path, name), spec.retrain, name)
