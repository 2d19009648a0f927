"""The family of fixed descriptors learns pictures, chooses its penalty, and gives the same bits again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from models.data.encode import write_tensors
from models.data.prepare import prepare_table, write_rows
from models.errors import UsageError
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Model, Spec, Train
from models.training.convex.descriptors import fit_descriptors
from models.training.job import TrainingJob
from models.training.rank import run_job
from tests.wide import wide

SIDE = 12
GOALS = {"binary": "roc_auc", "multiclass": "accuracy", "multilabel": "roc_auc", "regression": "mae"}
GOALS["quantile"] = "pinball"
TARGETS: dict[str, Any] = {"multilabel": ["steep", "bright"]}


def stripes(count: int = 240) -> pa.Table:
    """Grey stripes whose direction, width and brightness say the targets; where they begin says nothing."""
    random = np.random.default_rng(0)
    direction, begin = random.integers(0, 3, count), random.uniform(0, 6, count)
    level = random.integers(90, 160, count)
    y, x = np.mgrid[:SIDE, :SIDE]
    angle = direction[:, None, None] * np.pi / 3
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * 1.3 + begin[:, None, None])
    noisy = level[:, None, None] + 60 * wave + random.normal(0, 25, (count, SIDE, SIDE))
    return pa.table(
        {
            "image": [picture.tobytes() for picture in noisy.clip(0, 255).astype(np.uint8)],
            "binary": np.where(direction == 0, "yes", "no"),
            "multiclass": np.array(["a", "b", "c"])[direction],
            "steep": (direction == 2).astype(int),
            "bright": (level > 125).astype(int),
            "regression": level + 0.0,
            "quantile": level + 0.0,
            "weight": random.integers(0, 3, count),
        }
    )


def job_of(tmp_path: Path, task: str, name: str = "job", weight: str | None = None, **arguments: Any) -> TrainingJob:
    folder = tmp_path / name
    folder.mkdir()
    data = {
        "source": "t.csv",
        "target": TARGETS.get(task, task),
        "kind": "image",
        "image": {"height": SIDE, "width": SIDE},
        "weight": weight,
        "quantiles": [0.1, 0.5, 0.9] if task == "quantile" else None,
        "split": {"by": "random", "test": 0.1, "validation": 0.3},
    }
    spec = Spec.model_validate({"name": "t", "goal": {"metric": GOALS[task]}, "data": data})
    rows, preparation = prepare_table(stripes(), spec, folder)
    write_rows(rows, preparation, folder)
    return TrainingJob(
        folder=folder / "fit",
        prepared=folder,
        tensors=write_tensors(folder, folder),
        project=folder,
        model=Model(net="descriptors", arguments={"patches": 16, **arguments}),
        train=Train(),
        metric=GOALS[task],
        direction=METRICS[GOALS[task]].direction,
    )


@pytest.mark.parametrize(
    ("task", "least", "most"),
    [
        ("binary", 0.97, 1.0),
        ("multiclass", 0.95, 1.0),
        wide("multilabel", 0.95, 1.0),
        ("regression", 0.0, 9.0),
        wide("quantile", 0.0, 4.0),
    ],
)
def test_every_task_is_learnt(tmp_path: Path, task: str, least: float, most: float) -> None:
    result = run_job(job_of(tmp_path, task))
    assert least <= result.value <= most
    assert result.environment["refit"]["l2"] == result.environment["l2"]


def test_a_second_fit_has_the_same_bits_and_another_seed_other_filters(tmp_path: Path) -> None:
    first, second = (job_of(tmp_path, "multiclass", name) for name in ("one", "two"))
    assert run_job(first).weights_sha256 == run_job(second).weights_sha256
    other = second.model_copy(update={"folder": tmp_path / "other", "train": Train(seed=1)})
    run_job(other)
    filters = [load_file(job.folder / "weights.safetensors")["patches.filters"] for job in (first, other)]
    assert not torch.equal(*filters)


def test_pictures_of_weight_zero_count_for_nothing(tmp_path: Path) -> None:
    """Neither for the filters, nor for the scale of a descriptor, nor for the weights: other pixels change no bit."""
    job = job_of(tmp_path, "binary", weight="weight", l2=100.0)
    job = job.model_copy(update={"train": Train(refit=False)})
    expected = run_job(job).weights_sha256
    tensors = load_file(job.tensors["train"])
    tensors["image"][tensors["weight"] == 0] //= 2
    from safetensors.torch import save_file

    save_file(tensors, job.tensors["train"])
    assert run_job(job.model_copy(update={"folder": tmp_path / "again"})).weights_sha256 == expected


@pytest.mark.parametrize("arguments", [{"l2": -1.0}, {"iterations": 0}, {"depth": 3}])
def test_wrong_arguments_are_named(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(arguments))):
        fit_descriptors(job_of(tmp_path, "binary", **arguments), lambda _: True)
