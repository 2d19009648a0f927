"""The model that a search chooses: one trial's, an ensemble of several, or of a small table bags of five folds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from models.data.preparation import Preparation
from models.files import write_json
from models.metrics.metrics import Metric
from models.training.costs.summary import Costs
from models.training.families import SearchSpace
from models.training.job import TrainingJob
from models.training.search_course import (
    FOLDS,
    Comparison,
    FirstRound,
    bagged,
    choose,
    guarded,
    num_units,
    summaries,
    why_no_bag,
)
from models.training.search_space import NET, Trial, best_of, settings_of
from tasks.loop.loop import Loop

FAMILIES_FILE = "families.json"
"""The jobs of each family's best trial, by its name: beside the step's output, for the card of this machine."""
_TOO_MUCH = "the models are too much work, or the cost of a family is unknown"
ALL_ROWS = "on all training and validation rows, each judged by models of other folds"


def keep_families(folder: Path, jobs: Mapping[str, TrainingJob], names: Mapping[str, str]) -> None:
    """Write the jobs of each family's best trial below `folder`, by the family's name.

    Args:
        folder: Of the search.
        jobs: By net.
        names: Of the families, by net, as their summaries have them.
    """
    write_json(folder / FAMILIES_FILE, {names[net]: job.as_json() for net, job in jobs.items()})


class Choice(NamedTuple):
    """The best trial, the facts of the search's result (`params`, `best_value`, ...), and the costs of bags."""

    best: Trial
    facts: dict[str, Any]
    costs: Costs | None = None


class _Model(NamedTuple):
    """A model to serve: the trials whose settings its members have, and their weights, none of one trial's model."""

    members: Mapping[str, Trial]
    weights: list[float]
    value: float | None
    reasons: Mapping[str, str]
    """Why each family was chosen."""


@dataclass(frozen=True)
class ModelChoice:
    """Chooses among the trials of a search."""

    loop: Loop
    preparation: Preparation
    space: SearchSpace
    metric: Metric
    compare: Callable[[Mapping[str, Trial]], Comparison | None]
    """Compares the models of trials on validation; None if there are fewer than two."""
    fold_job: Callable[[Trial, tuple[int, int]], TrainingJob]
    """The job of a trial's settings on a fold."""

    def choose(self, trials: list[Trial], candidates: Mapping[str, Trial], first_round: FirstRound) -> Choice:
        """Return the choice, and note what each family reached.

        The settings and the value of an ensemble are of several trials; the best trial is then that of all families.

        Args:
            trials: All trials.
            candidates: The best ones of each family that went on, by name; none if trials have no model of their own.
            first_round: Which families went on.
        """
        direction = self.metric.direction
        best = best_of(trials, direction)
        if not self.space.is_choice:
            return Choice(best, {"params": self.space.settings(best.params), "best_value": best.value})
        model = self._model(best, candidates, self.compare(candidates), "on validation")
        reason = self._why_no_bag(candidates) or _TOO_MUCH
        bags = bagged(candidates, model.members) if reason is _TOO_MUCH else {}
        costs, folds, out = None, None, first_round.out
        if bags:
            bagged_model, costs, failed = self._bagged(best, bags, model)
            model, folds = (bagged_model, FOLDS) if bagged_model else (model, None)
            reason, out = "; ".join(failed.values()), {**out, **failed}
        families = summaries(list(self.space.families), trials, model.reasons, out, direction)
        for family in families:
            self.loop.report.note(f"search: {family.line(self.metric.name)}")
        settings = [self.space.settings(trial.params) for trial in model.members.values()]
        is_joined = bool(model.weights) or folds is not None
        params = settings_of(model.weights or [1.0], settings, folds) if is_joined else settings[0]
        facts = {
            "params": params,
            "best_value": model.value,
            "families": [family.model_dump() for family in families],
            "bag": f"each model on {FOLDS} folds of training and validation rows" if folds else f"no: {reason}",
        }
        return Choice(best if model.weights else next(iter(model.members.values())), facts, costs)

    def _model(self, best: Trial, candidates: Mapping[str, Trial], compared: Comparison | None, where: str) -> _Model:
        """Return the ensemble of the candidates that is better, or the best trial's model."""
        name, direction = self.metric.name, self.metric.direction
        if compared is None:
            reasons = {str(best.params[NET]): f"chosen: the best {name} {where}"}
            return _Model({str(best.params[NET]): best}, [], best.value, reasons)
        nets = {candidate: str(trial.params[NET]) for candidate, trial in candidates.items()}
        compared = guarded(compared, direction)
        reasons = choose(compared, nets, direction, name, where)
        members = {member: candidates[member] for member in compared.weights or reasons}
        if compared.joined is None:
            return _Model(members, [], next(iter(members.values())).value, reasons)
        return _Model(members, list(compared.weights.values()), compared.joined.value, reasons)

    def _why_no_bag(self, candidates: Mapping[str, Trial]) -> str:
        if not candidates:
            return "search.folds is set"
        job = self.fold_job(next(iter(candidates.values())), (0, FOLDS))
        rows = self.preparation.rows
        num_rows = rows["train"] + rows["validation"]
        return why_no_bag(self.loop.spec, self.preparation.task, num_rows, num_units(job.tensors))

    def _bagged(
        self, best: Trial, bags: Mapping[str, Trial], model: _Model
    ) -> tuple[_Model | None, Costs, dict[str, str]]:
        """Train the bags of these trials, and choose among them; None if a family of the search's model has none.

        Also returns the costs, and by net why it has no bag: it failed on a fold.
        """
        jobs = {
            name: [self.fold_job(trial, (fold, FOLDS)).as_json() for fold in range(FOLDS)]
            for name, trial in bags.items()
        }
        scores = self.loop.rank_pool.call("models.export.validation_scores:bag_scores", jobs=jobs)
        costs = Costs.model_validate(scores.pop("costs"))
        failed = {
            name: f"{self.space.names[name]} failed on a fold: {why}" for name, why in scores.pop("failed").items()
        }
        if failed.keys() & {str(trial.params[NET]) for trial in model.members.values()}:
            return None, costs, failed
        compared = Comparison.model_validate(scores)
        chosen = self._model(best, {name: bags[name] for name in compared.scores}, compared, ALL_ROWS)
        joined = compared.joined if chosen.weights else None
        value = (joined or compared.scores[next(iter(chosen.members))]).value
        self.loop.report.note(
            f"search: a bag of {FOLDS} folds of {', '.join(chosen.members)}: {self.metric.name} {value:.4f} {ALL_ROWS}"
        )
        return chosen._replace(value=value if math.isfinite(value) else None), costs, failed
