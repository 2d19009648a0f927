"""What each family of a search reached on validation, and, for the reader alone, on the test rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from models.files import read_json
from models.readable import readable
from models.training.checkpoints.finished import read_finished
from models.training.job import TrainingJob
from tasks.loop.jobs import tensors
from tasks.loop.loop import Inputs, Loop
from tasks.steps.search import FAMILIES_FILE, TRIALS


def family_rows(loop: Loop, inputs: Inputs) -> list[dict[str, Any]]:
    """Return a row for each family that the search chose from, with what it reached and cost.

    The test figures are those of the best trial's model as it is, without refit or bag. They are measured here, after
    the verdict and the promotion, so that nothing can be decided by them. Where the models are not on this machine,
    the rows have none.
    """
    families = inputs["search"].result.get("families", [])
    on_test = _on_test(loop, inputs) if families else {}
    return [_row(family, on_test) for family in families]


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


def _on_test(loop: Loop, inputs: Inputs) -> dict[str, list[float]]:
    """Return the scores of the finished models by family, as `scores_on_test` does; none that are on no disk here."""
    prepared, folder = inputs["prepare"], inputs["search"].folder
    places = {
        "prepared": str(prepared.folder),
        "project": str(loop.project.folder),
        "tensors": {name: str(path) for name, path in tensors(loop.state, prepared).items()},
    }
    stored: dict[str, dict[str, Any]] = read_json(folder / FAMILIES_FILE) or {}
    jobs = {
        name: {**job, **places, "folder": str(folder / TRIALS / Path(job["folder"]).name)}
        for name, job in stored.items()
    }
    finished = {name: job for name, job in jobs.items() if read_finished(TrainingJob.from_json(job)) is not None}
    if not finished:
        return {}
    scores: dict[str, list[float]] = loop.rank_pool.call(
        "models.export.validation_scores:scores_on_test", jobs=finished
    )
    return scores
