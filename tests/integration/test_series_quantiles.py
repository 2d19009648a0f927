"""Quantiles of series: each family's interval holds the stated share of the true values, in the exported graph."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from scipy.signal import lfilter

from models.data.encode import write_tensors
from models.data.feeds import feeds, targets
from models.data.preparation import Preparation
from models.data.prepare import prepare
from models.export.export import export
from models.inference.portable import MODEL_FILE
from models.inference.predict import predict
from models.judge.held_out import baseline_of
from models.metrics.metrics import METRICS
from models.metrics.outputs import is_covered
from models.project_spec.blocks import Model, Spec, Train
from models.training.job import TrainingJob
from models.training.rank import run_job
from tests.finished_jobs import METADATA

pytestmark = pytest.mark.wide  # with every change: tests/rules/test_quantiles.py, of tables; golden specs of series
FAMILIES = {
    "linear": {},
    "trees": {"rounds": 150, "learning_rate": 0.05, "num_leaves": 7},
    "gru": {"hidden": 16},
}
LEVELS = [0.1, 0.5, 0.9]
NUM_STEPS = 3000


def autoregression(phi: float, seed: int) -> NDArray[np.float64]:
    """A series whose value is 20, plus `phi` times its last distance from 20, plus noise."""
    return 20 + lfilter([1.0], [1.0, -phi], np.random.default_rng(seed).normal(size=NUM_STEPS))


def prepared(place: Path, values: NDArray[np.float64], goal: dict[str, Any] | None = None, **data: Any) -> Preparation:
    """Prepare a series: half of its steps are test rows."""
    split = {"by": "time", "column": "t", "test": 0.5, "validation": 0.1}
    window = {"length": 8, "horizon": [1, 3]}
    data = {"source": "x", "target": "y", "kind": "series", "split": split, "window": window, **data}
    spec = Spec.model_validate({"name": "t", "data": data, "goal": goal or {}})
    pq.write_table(pa.table({"t": np.arange(len(values)), "y": values}), place / "raw.parquet")
    return prepare(place / "raw.parquet", spec, place, place / "prepared")


def predicted(place: Path, preparation: Preparation, net: str, metric: str) -> NDArray[np.float64]:
    """Train a net, export it, and return what the graph predicts for the test rows."""
    torch.set_num_threads(1)
    (place / "tensors").mkdir()
    job = TrainingJob(
        folder=place / "job",
        prepared=place / "prepared",
        tensors=write_tensors(place / "prepared", place / "tensors"),
        project=place,
        model=Model(net=net, arguments=FAMILIES[net]),
        train=Train(refit=False, epochs=10),
        metric=metric,
        direction="minimize",
    )
    run_job(job)
    answer = export(job.as_json(), str(place / "export"), METADATA)
    assert answer["parity"] < answer["tolerance"]
    graph = place / "export" / MODEL_FILE
    return predict(graph, feeds(place / "prepared", "test", preparation), preparation)


@pytest.mark.parametrize("net", FAMILIES)
def test_an_interval_of_80_percent_holds_75_to_85_percent_at_each_horizon(net: str, tmp_path: Path) -> None:
    preparation = prepared(tmp_path, autoregression(0.7, seed=1), quantiles=LEVELS)
    values, target = predicted(tmp_path, preparation, net, "pinball"), targets(tmp_path / "prepared", "test")
    assert (np.diff(values.reshape(len(values), 2, 3), axis=2) >= 0).all(), "the quantiles of a horizon cross"
    covered = is_covered(target, values, preparation.outputs).mean(axis=0)
    assert ((covered >= 0.75) & (covered <= 0.85)).all(), covered
    naive = baseline_of(tmp_path / "prepared", preparation, target, "pinball")
    pinball = METRICS["pinball"].of(preparation.outputs)
    assert pinball.value(target, values) < pinball.value(target, naive.prediction)
    covered = is_covered(target, naive.prediction, preparation.outputs).mean(axis=0)
    assert ((covered >= 0.75) & (covered <= 0.85)).all(), covered


@pytest.mark.parametrize("net", FAMILIES)
def test_a_goal_of_one_quantile_lets_that_share_of_the_true_values_lie_below(net: str, tmp_path: Path) -> None:
    preparation = prepared(tmp_path, autoregression(0.7, seed=2), {"metric": "pinball", "quantile": 0.9})
    values, target = predicted(tmp_path, preparation, net, "pinball_0.9"), targets(tmp_path / "prepared", "test")
    below = (target <= values).mean(axis=0)
    assert ((below >= 0.86) & (below <= 0.94)).all(), below
    naive = baseline_of(tmp_path / "prepared", preparation, target, "pinball_0.9")
    below = (target <= naive.prediction).mean(axis=0)
    assert ((below >= 0.86) & (below <= 0.94)).all(), below
