"""Hyperparameter search without its engine: applies searched values to a spec and picks the best trial."""

from __future__ import annotations

import difflib
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import Field, ValidationError

from models.errors import TrainingError, UsageError
from models.frozen_model import FrozenModel
from models.nets.catalogue import ENSEMBLE, unused
from models.project_spec.blocks import Model, Train
from models.project_spec.references import is_own_code, short_name
from models.project_spec.search import Dimension, Search
from models.training.costs.summary import Costs
from models.training.job import TrainingResult

if TYPE_CHECKING:
    from models.training.model_choice import Direction, ValidationScore

NET = "model.net"
"""The path of the net itself, among the settings of a search that chose it."""
MEMBERS, WEIGHT = "members", "weight"
"""The argument of an ensemble that lists its members, each by its weight and its settings."""
FOLDS = "folds"
"""The argument of an ensemble whose members are bags: of so many models, each trained on all folds but one."""
_PATH = f"model.{MEMBERS}"
State = Literal["complete", "pruned", "failed"]


class TrialSuggestions(Protocol):
    """The part of an Optuna trial that draws values."""

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None, log: bool) -> float:
        """Return a float in [low, high]."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int:
        """Return an integer in [low, high]."""
        ...

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of the choices."""
        ...


class Trial(FrozenModel):
    """One finished trial. `reason` is the cause of a failed trial."""

    number: int
    state: State
    params: dict[str, Any]
    value: float | None = None
    reason: str = ""
    seconds: float = 0.0
    costs: Costs | None = None
    work_s: float = Field(0.0, description="Its work in seconds of a reference core, which the budget counts.")
    epochs: list[float] = Field(default_factory=list, description="The metric after each epoch.")
    noise: float = Field(0.0, description="Standard error of `value`; 0 if only the goal decides.")
    log_loss: float | None = None

    @property
    def score(self) -> ValidationScore:
        """The score by which trials are compared; NaN for what is unknown."""
        from models.training.model_choice import ValidationScore  # NumPy: a run with nothing to do needs none

        numbers = (self.value, self.log_loss)
        goal, log_loss = (float("nan") if number is None else number for number in numbers)
        return ValidationScore(goal, self.noise, log_loss)


def suggest(trial: TrialSuggestions, space: Mapping[str, Dimension]) -> dict[str, Any]:
    """Draw one value for each dimension, in the order of the space."""
    return {path: _draw(trial, path, dimension) for path, dimension in space.items()}


def check_space(space: Mapping[str, Dimension], net: str = "") -> None:
    """Reject a space over keys that `train` does not have or that the net does not use, before any trial runs.

    Raises:
        UsageError: A key is unknown or unused; the message names the nearest key.
    """
    for key in unused(net, (path.partition(".")[2] for path in space if path.startswith("train."))):
        raise UsageError(f"search.space.train.{key}: has no effect for {net}: search model.<argument> instead")
    for path in space:
        block, _, key = path.partition(".")
        if block == "train" and key not in Train.model_fields:
            near = difflib.get_close_matches(key, list(Train.model_fields), 1)
            cure = f"did you mean train.{near[0]}?" if near else f"expected one of {', '.join(Train.model_fields)}"
            raise UsageError(f"search.space.{path}: train has no {key!r}: {cure}")


def with_params(
    model: Model, train: Train, params: Mapping[str, Any], source: str = "search.space"
) -> tuple[Model, Train]:
    """Return the spec's model and train blocks with the searched values; `model.net` among them names the net.

    Args:
        model: The spec's block.
        train: The spec's block.
        params: Values by spec path.
        source: The key of the spec that they come from.

    Raises:
        UsageError: A value is not valid for its key, so the space exceeds the allowed range.
    """
    arguments, settings = dict(model.arguments), train.model_dump()
    net = str(params.get(NET, model.net))
    for path, value in params.items():
        block, _, key = path.partition(".")
        if path != NET:
            (arguments if block == "model" else settings)[key] = value
    try:
        return model.model_copy(update={"net": net, "arguments": arguments}), Train.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{source}: train.{first['loc'][0]}: got {first['input']!r}: {first['msg']}") from error


def settings_of(
    weights: Iterable[float], members: Iterable[Mapping[str, Any]], folds: int | None = None
) -> dict[str, Any]:
    """Return the settings of an ensemble by spec path, from the weights and the settings of its members.

    Args:
        weights: Of the members.
        members: The settings of each.
        folds: Models of each member's bag; None: a member is one model.
    """
    listed = [{WEIGHT: weight, **params} for weight, params in zip(weights, members, strict=True)]
    return {NET: ENSEMBLE, _PATH: listed, **({f"model.{FOLDS}": folds} if folds else {})}


def numbered(names: Sequence[str]) -> list[str]:
    """Return names of which none is there twice: the second `trees` is `trees-2`."""
    counts = [names[: index + 1].count(name) for index, name in enumerate(names)]
    return [name if count == 1 else f"{name}-{count}" for name, count in zip(names, counts, strict=True)]


def member_names(nets: Sequence[str]) -> list[str]:
    """Return a name for each member of an ensemble, for folders and people: the short name of its net, numbered."""
    return numbered([short_name(net) for net in nets])


def member_nets(members: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the families of an ensemble's members, each once."""
    return tuple(dict.fromkeys(str(member[NET]) for member in members))


def shares_of(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the weight of each member by its name; empty if the settings are of no ensemble."""
    return {name: float(member[WEIGHT]) for name, member in _members(settings).items()}


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings flat, for people: those of a member under its name."""
    flat = {path: value for path, value in settings.items() if path != _PATH}
    for name, member in _members(settings).items():
        flat |= {f"{name}.{path}": value for path, value in member.items() if path != NET or is_own_code(value)}
    return flat


def _members(settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    members = settings.get(_PATH, ())
    return dict(zip(member_names([str(member[NET]) for member in members]), members, strict=True))


def grid(space: Mapping[str, Dimension]) -> dict[str, list[Any]]:
    """Return all values of each dimension, for a grid search.

    Raises:
        UsageError: A dimension is a range without a step.
    """
    return {path: _values(path, dimension) for path, dimension in space.items()}


def grid_point(space: Mapping[str, Dimension], seed: int, position: int) -> dict[str, Any]:
    """Return point `position` of the grid in an order shuffled by `seed`, so that a short search samples all of it."""
    values = grid(space)
    points = list(itertools.product(*values.values()))
    random.Random(seed).shuffle(points)  # noqa: S311 - an order, not a secret
    return dict(zip(values, points[position % len(points)], strict=True))


def trials_owed(search: Search, space: Mapping[str, Dimension], trials: Sequence[Trial]) -> int:
    """Return how many trials are left to run: killed trials do not count, and a grid ends with its last point."""
    target_count = search.trials
    if search.sampler == "grid":
        target_count = min(target_count, math.prod(len(values) for values in grid(space).values()))
    return max(0, target_count - len(trials))


def best_of(trials: Sequence[Trial], direction: Direction) -> Trial:
    """Return the best complete trial, or the best pruned one if none is complete; the earlier trial wins a tie.

    Within the noise of the goal, the least log loss decides (`models/training/model_choice.py`).

    Raises:
        TrainingError: All trials failed; the message names the commonest cause.
    """
    from models.training.model_choice import choose

    for state in ("complete", "pruned"):
        candidates = [trial for trial in trials if trial.state == state and trial.value is not None]
        if candidates:
            candidates.sort(key=lambda trial: trial.number)
            return candidates[choose([trial.score for trial in candidates], direction)]
    causes = Counter(trial.reason or "unknown" for trial in trials)
    cause, count = causes.most_common(1)[0] if causes else ("no trial ran", 0)
    raise TrainingError(
        f"search: all {len(trials)} trials failed, {count} of them so ({cause}): correct that, or narrow search.space"
    )


def bests_of(trials: Sequence[Trial], families: Sequence[str], direction: Direction, limit: int) -> dict[str, Trial]:
    """Return the best trials of each family, at most so many: the first by the family, the second as `trees-2`."""
    bests = []
    for net in families:
        trials_of_net = [trial for trial in trials if trial.params.get(NET) == net]
        for _ in range(min(limit, len(trials_of_net))):
            bests.append(best_of(trials_of_net, direction))
            trials_of_net.remove(bests[-1])
    return dict(zip(numbered([trial.params[NET] for trial in bests]), bests, strict=True))


def mean_value(results: Sequence[TrainingResult]) -> float:
    """Return the mean of the values of a trial, one a fold; NaN without any."""
    return sum(result.value for result in results) / len(results) if results else math.nan


def mean_score(results: Sequence[TrainingResult]) -> dict[str, float | None]:
    """Return the fields `noise` and `log_loss` of a trial from its results, one a fold; empty without any."""
    if not results:
        return {}
    noise = math.sqrt(sum(result.noise**2 for result in results)) / len(results)
    log_losses = [result.log_loss for result in results if result.log_loss is not None]
    return {"noise": noise, "log_loss": sum(log_losses) / len(log_losses) if len(log_losses) == len(results) else None}


def _draw(trial: TrialSuggestions, path: str, dimension: Dimension) -> Any:
    if dimension.choices is not None:
        return trial.suggest_categorical(path, dimension.choices)
    low, high = dimension.low or 0.0, dimension.high or 0.0
    if dimension.integer:
        return trial.suggest_int(path, int(low), int(high), step=int(dimension.step or 1), log=dimension.log)
    return trial.suggest_float(path, low, high, step=dimension.step, log=dimension.log)


def _values(path: str, dimension: Dimension) -> list[Any]:
    if dimension.choices is not None:
        return list(dimension.choices)
    step = dimension.step or (1.0 if dimension.integer else None)
    if step is None:
        raise UsageError(f"search.space.{path}: got a range, expected `choices`, or a `step`, for a grid")
    low, high = dimension.low or 0.0, dimension.high or 0.0
    values = [low + index * step for index in range(int((high - low) / step + 1e-9) + 1)]
    return [int(value) for value in values] if dimension.integer else values


def best_epochs(members: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the best epochs of the models of bags, in words by member, from their results by name."""
    epochs: dict[str, list[str]] = {}
    for name, model in members.items():
        epochs.setdefault(name.rpartition("-fold-")[0], []).append(str(model["best_epoch"]))
    return {f"{name}: best epochs of the folds": ", ".join(best) for name, best in epochs.items()}
