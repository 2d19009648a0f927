"""What the search's models reached beside the chosen one: each family on test, a linear one without other columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from models.files import read_json
from models.readable import readable
from models.training.checkpoints.finished import read_finished
from models.training.job import COMPANIONS, TrainingJob, TrainingResult
from tasks.loop.inputs import Input
from tasks.loop.jobs import tensors
from tasks.ranks.rank_pool import RankPool
from tasks.steps.search import TRIALS
from tasks.steps.search_choice import FAMILIES_FILE


class FinishedTrial(NamedTuple):
    """The model of a family's best trial, on this machine."""

    job: TrainingJob
    result: TrainingResult


def finished_trials(prepared: Input, searched: Path, state: Path, project: Path) -> dict[str, FinishedTrial]:
    """Return the best trials of a search over families, by family; none whose models are not on this machine.

    Args:
        prepared: The data.
        searched: The folder of the search.
        state: The folder of the project's state.
        project: The project's folder.
    """
    stored: dict[str, dict[str, Any]] = read_json(searched / FAMILIES_FILE) or {}
    files = {name: str(path) for name, path in tensors(state, prepared).items()} if stored else {}
    places = {"prepared": str(prepared.folder), "project": str(project), "tensors": files}
    trials = {}
    for name, job in stored.items():
        moved = {**job, **places, "folder": str(searched / TRIALS / Path(job["folder"]).name)}
        task = TrainingJob.from_json(moved)
        result = read_finished(task)
        if result is not None:
            trials[name] = FinishedTrial(task, result)
    return trials


def family_rows(
    families: list[dict[str, Any]], trials: Mapping[str, FinishedTrial], pool: RankPool
) -> list[dict[str, Any]]:
    """Return a row for each family that the search chose from, with what it reached and cost.

    The test figures are those of the best trial's model as it is, without refit or bag. They are measured here, after
    the verdict and the promotion, so that nothing can be decided by them.

    Args:
        families: As the search left them.
        trials: Those whose models are on this machine; the other rows have no test figure.
        pool: It measures.
    """
    jobs = {
        family["family"]: trials[family["family"]].job.as_json() for family in families if family["family"] in trials
    }
    reference = "models.export.validation_scores:scores_on_test"
    on_test: dict[str, list[float]] = pool.call(reference, jobs=jobs) if jobs else {}
    return [_row(family, on_test) for family in families]


def without_other_columns(
    environments: Iterable[Mapping[str, Any]], metric: str, sign: int
) -> tuple[dict[str, str], list[str]]:
    """Return what the linear model of series reached with the other columns and without, and what to try then.

    Args:
        environments: Of the results of trainings; the first linear one counts that tried both.
        metric: The goal's name.
        sign: 1 where more of it is better, -1 where less is.

    Returns:
        A fact for the card, none where there are no other columns, and a sentence if it is better without them.
    """
    reached = next((facts[COMPANIONS] for facts in environments if COMPANIONS in facts), None)
    if reached is None:
        return {}, []
    figures = (
        f"{metric} {readable(reached['without'])} without the other columns, {readable(reached['with'])} with them"
    )
    fact = {"linear model on validation": figures}
    if sign * (reached["without"] - reached["with"]) <= 0:
        return fact, []
    cure = f"data.features.drop: [{', '.join(reached['columns'])}]"
    return fact, [f"On validation the linear model reached {figures}. Nets and trees read them: try {cure}."]


def _row(family: dict[str, Any], on_test: dict[str, list[float]]) -> dict[str, Any]:
    scores = {"on test": _with_error(*on_test[family["family"]])} if family["family"] in on_test else {}
    return {
        "family": family["family"],
        "trials": family["trials"],
        "best on validation": "none" if family["value"] is None else readable(family["value"]),
        **(scores or ({"on test": None} if on_test else {})),
        "device-seconds": float(f"{family['device_seconds']:.3g}"),
        "outcome": family["outcome"],
    }


def _with_error(value: float, error: float) -> str | None:
    if not math.isfinite(value):
        return None
    return f"{readable(value)} ± {readable(error, 2)}" if math.isfinite(error) else readable(value)
