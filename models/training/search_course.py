"""The course of a search that chooses between families: who is tried next, who is out, when it ends.

First each family has one trial with its defaults. A family that is clearly behind then gets no more. After that the
leader has every second trial and the others take turns, until nothing improves. Of a small table each family's best
settings are trained once more on each of five folds, and served together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from models.frozen_model import FrozenModel
from models.kinds.task import Task, refusal
from models.nets.catalogue import row_of
from models.project_spec.blocks import Spec
from models.project_spec.references import short_name
from models.readable import readable
from models.training.costs.summary import total
from models.training.search_space import NET, Trial, member_names

if TYPE_CHECKING:
    import numpy as np

ERRORS = 2.0
"""A family is clearly behind if the leader's lead is more than this many standard errors, and also more than"""
SHARE = 0.05
"""this share of what the leader gains over a constant prediction, which tuning may win back."""
TOLERANCE = 0.005
"""An improvement counts if it is more than this share of the leader's gain over a constant prediction."""
FITS_OF_A_NET = 3
"""The default budget of a search of one net that counts its steps, in works of its first trial."""
FITS = 15
"""The default budget of a search over families, in works of its first trial, at least"""
LEAST_S = 6.0
"""these seconds of a reference core and at most"""
MOST_S = 600.0
"""these."""
BLOCKS = 20
"""Blocks of validation examples that are left out in turn, for the error of a difference."""
PATIENCE = 4
"""Trials without an improvement after which a search over families ends, if `search.patience` is not set."""

FOLDS = 5
"""Models of a bag. Source: the usual number of folds, Hastie, Tibshirani and Friedman (2009), section 7.10."""
MOST_ROWS = 5_000
"""Training and validation rows. Beyond, the validation rows alone are many, and the folds cost more than they gain."""
WORK_OF_A_CPU_S = 3.0
"""Seconds of a reference core that the fits of bags count for a CPU-second: nets stop early (docs/decisions/0098)."""
FEWEST_UNITS = 200
"""Independent units of these rows. With fewer the model of a fold lacks rows more than the mean helps."""


class FirstRound(FrozenModel):
    """The outcome of the first round: the families that go on, why the others do not, and the scale of the metric."""

    families: list[str] = Field(description="Those that go on.")
    out: dict[str, str] = Field(description="The others, and why.")
    gain: float = Field(0.0, description="How much better the leader is than a constant prediction.")


class FamilySummary(FrozenModel):
    """One family's part in a search."""

    family: str
    trials: int
    value: float | None = Field(None, description="The goal's metric on validation in its best trial.")
    device_seconds: float = 0.0
    outcome: str

    def line(self, metric: str) -> str:
        """Return a line for people; `metric` is the goal's."""
        reached = "nothing" if self.value is None else f"{metric} {self.value:.4f}"
        cost = f"{self.trials} trials and {self.device_seconds:.1f} device-seconds"
        return f"{self.family} reached {reached} in {cost}; {self.outcome}"


class Scores(FrozenModel):
    """The metric of one trained model on the validation examples, and on all but each of `k` equal blocks of them."""

    value: float
    without: list[float]


class Comparison(FrozenModel):
    """What models of several families reached on validation, by name; see models/export/validation_scores.py."""

    scores: dict[str, Scores]
    constant: float = Field(description="The metric of a constant prediction; NaN if it is not defined.")
    weights: dict[str, float] = Field(description="Of the members of an ensemble that is better; empty without one.")
    joined: Scores | None = Field(description="Of that ensemble.")
    joined_by: str = Field(description="The name of the metric in which it is better.")


def first_round(scores: Mapping[str, Scores], constant: float, direction: str, metric: str) -> FirstRound:
    """Decide after the first trial of each family which are clearly behind.

    Args:
        scores: By family; one without scores failed and is not among them.
        constant: The metric of a constant prediction; NaN if it is not defined.
        direction: maximize or minimize.
        metric: Its name, for the reasons.
    """
    sign = 1 if direction == "maximize" else -1
    best = max(scores, key=lambda family: sign * scores[family].value)
    gain = sign * (scores[best].value - constant)
    gain = gain if math.isfinite(gain) and gain > 0 else 0.0
    out = {}
    for family, score in scores.items():
        lead = sign * (scores[best].value - score.value)
        error = _error_between(scores[best].without, score.without)
        if lead > ERRORS * error and lead > SHARE * gain:
            reached = f"{readable(score.value)} against {readable(scores[best].value)} of {short_name(best)}"
            out[family] = (
                f"{metric} {reached}: behind by {lead:.3g}, over {ERRORS:g} standard errors ({error:.2g}) and "
                f"{SHARE:.0%} of the gain over a constant"
            )
    return FirstRound(families=[family for family in scores if family not in out], out=out, gain=gain)


def jackknife_error(without: Any) -> float:
    """Return the standard error of a figure from its values without each of `k` equal blocks, float64 (blocks,).

    Infinite with fewer than two blocks where the figure is defined.

    Source: the delete-a-group jackknife, Shao and Tu, The Jackknife and Bootstrap (1995), section 2.3.
    """
    import numpy as np

    values = np.asarray(without, np.float64)
    values = values[np.isfinite(values)]
    count = len(values)
    if count < 2:
        return math.inf
    return float(np.sqrt((count - 1) / count * np.square(values - values.mean()).sum()))


def _error_between(without: Sequence[float], other_without: Sequence[float]) -> float:
    """Return the standard error of the difference of two figures."""
    import numpy as np

    return jackknife_error(np.subtract(without, other_without))


def without_blocks(count: int) -> Iterator[np.ndarray]:
    """Yield how often each of `count` examples in their order counts, (example,): without each of equal blocks."""
    import numpy as np

    for block in np.array_split(np.arange(count), min(BLOCKS, count)):
        drawn = np.ones(count)
        drawn[block] = 0
        yield drawn


def guarded(compared: Comparison, direction: str) -> Comparison:
    """Return the comparison without an ensemble that is clearly behind its best model in the goal's metric.

    The log loss chooses ensembles of classes; a goal that asks for something else must not pay for it.
    """
    if compared.joined is None:
        return compared
    sign = 1 if direction == "maximize" else -1
    best = max(compared.scores.values(), key=lambda score: sign * score.value)
    error = _error_between(best.without, compared.joined.without)
    is_behind = sign * (best.value - compared.joined.value) > ERRORS * error
    return compared.model_copy(update={"weights": {}, "joined": None}) if is_behind else compared


def choose(
    compared: Comparison, families: Mapping[str, str], direction: str, metric: str, where: str = "on validation"
) -> dict[str, str]:
    """Return the chosen families, and why each: those of the ensemble, or without one a single family.

    Args:
        compared: What each model reached, by name; a family's best one has its name.
        families: The family of each model.
        direction: maximize or minimize.
        metric: Its name, for the reasons.
        where: The rows that judge, in words for the reasons.
    """
    if compared.joined is None:
        bests = {family: compared.scores[family] for family in dict.fromkeys(families.values())}
        return dict([_choose_one(bests, direction, metric, where)])
    shares: dict[str, list[float]] = {}
    for name, weight in compared.weights.items():
        shares.setdefault(families[name], []).append(weight)
    better = f"better {compared.joined_by}, and " if compared.joined_by != metric else ""
    ensemble = f"of an ensemble with {better}{metric} {readable(compared.joined.value)} {where}"
    return {
        family: f"chosen: {' and '.join(format(weight, '.0%') for weight in weights)} {ensemble}"
        for family, weights in shares.items()
    }


def _choose_one(scores: Mapping[str, Scores], direction: str, metric: str, where: str) -> tuple[str, str]:
    """Return the chosen family and why: the first one whose best trial is within a standard error of the best of all.

    Validation rows are few and trials many, so the best value alone would favour whoever had more luck.
    Source: the one-standard-error rule, Breiman et al., Classification and Regression Trees (1984), section 3.4.3.

    Args:
        scores: Of each family's best trial, in the order of preference.
        direction: maximize or minimize.
        metric: Its name, for the reason.
        where: The rows that judge, in words for the reason.
    """
    sign = 1 if direction == "maximize" else -1
    best = max(scores, key=lambda family: sign * scores[family].value)
    for family, score in scores.items():
        lead = sign * (scores[best].value - score.value)
        error = _error_between(scores[best].without, score.without)
        if family == best:
            return best, f"chosen: the best {metric} {where}"
        if lead <= error < math.inf:
            return family, f"chosen: within a standard error ({error:.2g}) of {short_name(best)}, and tried before it"
    return best, f"chosen: the best {metric} {where}"


def next_family(families: Sequence[str], trials: Sequence[Trial], direction: str, turn: int) -> str:
    """Return the family of the trial `turn` (0, 1, ...) after the first round: the leader's is every second one."""
    leader = max(families, key=lambda family: _best(trials, family, direction))
    other_families = [family for family in families if family != leader]
    return other_families[turn // 2 % len(other_families)] if other_families and turn % 2 else leader


def is_stalled(trials: Sequence[Trial], direction: str, patience: int, tolerance: float, first: int = 0) -> bool:
    """Return whether `patience` trials after the first `first` have not improved the best value by over `tolerance`."""
    sign = 1 if direction == "maximize" else -1
    best, since = -math.inf, 0
    for index, trial in enumerate(trials):
        value = -math.inf if trial.value is None or trial.state != "complete" else sign * trial.value
        if value > best + tolerance or best == -math.inf:
            best, since = max(best, value), 0
        elif index >= first:
            since += 1
    return since >= patience


def budget_s(trials: Sequence[Trial], is_choice: bool = True) -> float:
    """Return the default budget of a search over families, or of a named net that counts its steps.

    So many works of the first trial; of families within bounds.
    """
    if not is_choice:
        return FITS_OF_A_NET * trials[0].work_s if trials else math.inf
    return min(MOST_S, max(LEAST_S, FITS * trials[0].work_s)) if trials else MOST_S


def left_s(trials: Sequence[Trial], budget: float, family: str | None = None) -> float:
    """Return what the work of the trials leaves of the budget; with `family`, the work of its own alone.

    So what another family's first trial took ends no family before it has had its own first ones.
    """
    trials_of_family = [trial for trial in trials if family in (None, trial.params.get(NET))]
    return budget - sum(trial.work_s for trial in trials_of_family)


def summaries(
    families: Sequence[str], trials: Sequence[Trial], chosen: Mapping[str, str], out: Mapping[str, str], direction: str
) -> list[FamilySummary]:
    """Return what each family reached and cost, and why it was chosen (`chosen`: which, and why) or not (`out`)."""
    result = []
    lone = f"no better than {short_name(next(iter(chosen)))} by more than a standard error"
    reason = lone if len(chosen) == 1 else "the ensemble is no better with it"
    for family, name in zip(families, member_names(families), strict=True):
        trials_of_family = [trial for trial in trials if trial.params.get(NET) == family]
        value = _value(trials_of_family, direction)
        if family in chosen:
            outcome = chosen[family]
        elif not trials_of_family:
            outcome = "not tried: the search ended before its turn"
        elif value is None:
            outcome = f"failed: {next((trial.reason for trial in trials_of_family if trial.reason), 'no trial ended')}"
        elif family in out:
            outcome = f"no more trials: {out[family]}"
        else:
            outcome = f"not chosen: {reason}"
        result.append(
            FamilySummary(
                family=name,
                trials=len(trials_of_family),
                value=value,
                device_seconds=total(trial.costs for trial in trials_of_family).device_seconds,
                outcome=outcome,
            )
        )
    return result


def _best(trials: Sequence[Trial], family: str, direction: str) -> float:
    """Return a family's best value, larger is better; -inf if none of its trials ended."""
    value = _value([trial for trial in trials if trial.params.get(NET) == family], direction)
    if value is None:
        return -math.inf
    return value if direction == "maximize" else -value


def _value(trials: Sequence[Trial], direction: str) -> float | None:
    """Return the best value of the complete trials; None without one."""
    values = [trial.value for trial in trials if trial.value is not None and trial.state == "complete"]
    return (max if direction == "maximize" else min)(values, default=None)


def bag_plan(spec: Spec, nets: Sequence[str], task: Task | None, num_rows: int | None) -> str:
    """Return whether a search will train bags, and what they cost at most; empty where there is nothing to choose.

    Args:
        spec: The project's spec.
        nets: The families that the search chooses from.
        task: Of the prepared data; None before.
        num_rows: Training and validation rows of the prepared data; None before.
    """
    budget_s = max(row_of(net).bag_s for net in nets)
    if len(nets) < 2 or not budget_s or not spec.search.trials or spec.search.folds > 1:
        return ""
    count = FEWEST_UNITS if num_rows is None else num_rows
    if reason := why_no_bag(spec, task, count, count):
        return f"search trains no bags: {reason}"
    condition = f" of a table of {FEWEST_UNITS:,} to {MOST_ROWS:,} training and validation rows" * (num_rows is None)
    return (
        f"search ends with bags{condition}: the best model of each family is trained on {FOLDS} folds, in at most "
        f"{budget_s:g} seconds of a reference core (about {budget_s / WORK_OF_A_CPU_S:.0f} CPU-s); search.bag: false "
        "leaves them out"
    )


def why_no_bag(spec: Spec, task: Task | None, num_rows: int, num_units: int) -> str:
    """Return why a search chooses no bags; empty if it does.

    Args:
        spec: The project's spec.
        task: The task; None if it is not known yet.
        num_rows: Training and validation rows.
        num_units: Independent units of the training and validation rows.
    """
    search, methods, split = spec.search, spec.train.methods, spec.data.split
    reasons = {
        "search.bag is false": not search.bag,
        "search.ensemble is false": not search.ensemble,
        f"the rows are split by {split.by}, so the last ones judge": split.by in ("time", "position"),
        f"{num_rows:,} training and validation rows are more than {MOST_ROWS:,}": num_rows > MOST_ROWS,
        f"{num_units} independent units of rows are fewer than {FEWEST_UNITS}": num_units < FEWEST_UNITS,
        f"train.{next(iter(methods), '')} is set": bool(methods),
        "search.sample is set": search.sample < 1,
        "train.rows is set": spec.train.rows is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), refusal(task, "ensemble"))


def bagged(candidates: Mapping[str, Trial], members: Mapping[str, Trial]) -> dict[str, Trial]:
    """Return the trials of whose settings bags are trained: each family's best, those that the search has chosen first.

    A second bag of a family doubles what it costs, and gains nothing (docs/decisions/0116). Empty if the families of
    the search's choice are too much work, or the cost of one is unknown.

    Args:
        candidates: The best trials of each family, the better first, by name.
        members: Those of them that the search has chosen.
    """
    bests: dict[str, Trial] = {}
    for trial in candidates.values():
        bests.setdefault(str(trial.params[NET]), trial)
    chosen = {str(trial.params[NET]) for trial in members.values()}
    fitting, spent = set(), 0.0
    for net in sorted(bests, key=lambda net: net not in chosen):
        work_s = FOLDS * bests[net].work_s
        fits = spent + work_s <= row_of(net).bag_s
        if not fits and net in chosen:
            return {}
        if fits:
            fitting.add(net)
            spent += work_s
    return {net: trial for net, trial in bests.items() if net in fitting}


def num_units(tensors: Mapping[str, Path]) -> int:
    """Return the number of independent units of the training and validation rows of a table: groups, or rows."""
    import numpy as np
    from safetensors import safe_open

    keys, num_rows = [], 0
    for split in ("train", "validation"):
        with safe_open(tensors[split], framework="numpy") as file:
            num_rows += int(file.get_slice("target").get_shape()[0])
            keys += [file.get_tensor("key")] if "key" in file.keys() else []  # noqa: SIM118  not a dict
    return len(np.unique(np.concatenate(keys))) if keys else num_rows
