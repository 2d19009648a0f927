"""A table, a goal and a family become a finished job and its export, in one process: for rules that walk all stages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.data.encode import write_tensors
from models.data.feeds import feeds
from models.data.preparation import Preparation
from models.data.prepare import prepare
from models.export.export import export
from models.inference.predict import predict
from models.metrics.metrics import METRICS, metric_of
from models.project_spec.blocks import Model, Spec, Train
from models.training.batches.examples import open_examples
from models.training.ensemble import members_of
from models.training.job import TrainingJob
from models.training.rank import run_job
from tests.finished_jobs import METADATA


def prepared_table(place: Path, columns: Mapping[str, Any], **blocks: Any) -> tuple[Spec, dict[str, Path]]:
    """Prepare columns below `place`; return the spec, and where the tensors of each split lie."""
    place.mkdir(parents=True)
    pq.write_table(pa.table(dict(columns)), place / "raw.parquet")
    data = {"source": "raw.parquet", "target": "y", **blocks.pop("data", {})}
    spec = Spec.model_validate({"name": "rule", "data": data, **blocks})
    prepare(place / "raw.parquet", spec, place, place / "prepared")
    (place / "tensors").mkdir()
    return spec, write_tensors(place / "prepared", place / "tensors")


def fitted(
    place: Path, prepared: tuple[Spec, dict[str, Path]], net: str, arguments: dict[str, Any] | None = None, **train: Any
) -> TrainingJob:
    """Train a family, or the members of an ensemble, for the goal of a prepared table; return the finished job."""
    spec, tensors = prepared
    folder = tensors["train"].parent.parent
    metric = metric_of(spec.goal, Preparation.load(folder / "prepared"), folder)
    job = TrainingJob(
        folder=place,
        prepared=folder / "prepared",
        tensors=tensors,
        project=folder,
        model=Model(net=net, arguments=arguments or {}),
        train=Train(**{"epochs": 10, **train}),
        metric=metric.name,
        direction=metric.direction,
    )
    for member in members_of(job) or [None]:
        run_job(job if member is None else member.job)
    return job


def answers(
    job: TrainingJob, out: Path, split: str = "test"
) -> tuple[np.ndarray, np.ndarray, Preparation, dict[str, Any]]:
    """Export a job; return the true values and the graph's predictions of a split, the preparation and the record."""
    record = export(job.as_json(), str(out), METADATA)
    preparation = Preparation.load(out)
    predicted = predict(Path(record["path"]), feeds(job.prepared, split, preparation), preparation)
    return true_values(job, split), predicted, preparation, record


def true_values(job: TrainingJob, split: str = "test") -> np.ndarray:
    """Return the true values of a split in the form for metrics."""
    tensors = {**job.tensors, "validation": job.tensors[split]}
    examples = open_examples(job.model_copy(update={"tensors": tensors}), Preparation.load(job.prepared))[1]
    values: np.ndarray = examples.values()
    return values


__all__ = ["METRICS", "answers", "fitted", "prepared_table", "true_values"]
