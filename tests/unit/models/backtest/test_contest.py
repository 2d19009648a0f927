"""A replayed challenger meets the champion by the live verdict, and a period's metric is resampled the same for all."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.backtest.contest import PREPARED, RESAMPLES, contest, score
from models.backtest.period_rows import prepare_known
from models.backtest.periods import RowRange
from models.data.encode import write_tensors
from models.data.preparation import PREPARATION_FILE, Preparation
from models.data.target_encoding import TargetEncoding
from models.export.export import export
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Spec
from models.project_spec.window import Window
from models.training.job import TrainingJob
from models.training.rank import run_job

DATA = {"source": "x.csv", "target": "y", "split": {"by": "time", "column": "t"}}


def spec(**more: object) -> Spec:
    return Spec.model_validate({"name": "t", "data": DATA, "model": {"net": "trees"}, **more})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model as a rehearsal leaves it."""
    folder, random = tmp_path_factory.mktemp("model"), np.random.default_rng(0)
    x = random.normal(size=600)
    table = pa.table({"t": np.arange(600), "x": x, "y": np.where(x + random.normal(size=600) > 0, "yes", "no")})
    return model_of(table, spec(), folder, "roc_auc", "maximize")


def model_of(table: pa.Table, own: Spec, folder: Path, metric: str, direction: str) -> Path:
    prepare_known(table, RowRange(0, table.num_rows), own, folder, folder / PREPARED)
    job = TrainingJob(
        folder=folder / "job",
        prepared=folder / PREPARED,
        tensors=write_tensors(folder / PREPARED, folder),
        project=folder,
        model=own.model,
        train=own.train,
        metric=metric,
        direction=direction,
    )
    run_job(job)
    export(job.as_json(), str(folder), {})
    return folder


def test_a_first_model_is_judged_by_goal_and_baseline(trained: Path):
    verdict = contest(trained, None, spec(goal={"good_enough": 0.99}), trained)
    assert verdict.champion is None
    assert [gate.name for gate in verdict.failed] == ["goal"]
    assert verdict.over_baseline is not None


def test_a_model_is_no_worse_than_itself_and_no_better(trained: Path):
    assert contest(trained, trained, spec(), trained).promoted
    strict = contest(trained, trained, spec(judge={"mode": "superiority"}), trained)
    assert [gate.name for gate in strict.failed] == ["champion"]
    assert strict.difference is not None
    assert strict.difference.value == 0.0


def test_latency_is_measured_only_where_a_gate_asks_for_it(trained: Path):
    assert contest(trained, None, spec(), trained).challenger_cost.latency_ms is None
    slow = contest(trained, None, spec(judge={"max_latency_ms": 1e-9}), trained)
    assert "latency" in [gate.name for gate in slow.failed]


def test_a_champion_that_answers_another_question_is_not_compared(trained: Path, tmp_path: Path):
    other = tmp_path / "other"
    shutil.copytree(trained, other)
    told = Preparation.load(trained)
    renamed = told.model_copy(update={"target": told.target.model_copy(update={"classes": ["a", "b"]})})
    (other / PREPARATION_FILE).write_text(renamed.model_dump_json())
    assert contest(trained, other, spec(), trained).champion is None


def test_several_horizons_are_judged_together_and_each_by_itself(tmp_path: Path):
    data = {**DATA, "kind": "series", "window": {"length": 5, "horizon": [1, 3]}}
    own = Spec.model_validate({"name": "t", "data": data, "model": {"net": "linear"}})
    table = pa.table({"t": np.arange(300), "y": np.sin(np.arange(300) / 5) + np.random.default_rng(0).normal(size=300)})
    verdict = contest(model_of(table, own, tmp_path, "mae", "minimize"), None, own, tmp_path)
    values = [output.goal.value for output in verdict.outputs if output.goal]
    assert np.mean(values) == pytest.approx(verdict.challenger.value)
    assert [output.name for output in verdict.outputs] == ["h1", "h3"]
    assert all(output.goal and output.goal.low < output.goal.value < output.goal.high for output in verdict.outputs)


@pytest.mark.wide
def test_the_quantiles_of_a_horizon_are_judged_together(tmp_path: Path):
    data = {**DATA, "kind": "series", "window": {"length": 5, "horizon": [1, 3]}, "quantiles": [0.1, 0.9]}
    own = Spec.model_validate({"name": "t", "data": data, "model": {"net": "linear"}})
    table = pa.table({"t": np.arange(300), "y": np.sin(np.arange(300) / 5) + np.random.default_rng(0).normal(size=300)})
    verdict = contest(model_of(table, own, tmp_path, "pinball", "minimize"), None, own, tmp_path)
    assert [output.name for output in verdict.outputs] == ["h1_q0.1", "h1_q0.9", "h3_q0.1", "h3_q0.9"]
    assert list(verdict.horizons) == ["h1", "h3"]
    for name, estimate in verdict.horizons.items():
        losses = [output.challenger["pinball"] for output in verdict.outputs if output.horizon == name]
        assert estimate.value == pytest.approx(np.mean(losses))


TABLE = Preparation(kind="table", task="binary", target=TargetEncoding(name="y", classes=["no", "yes"]))
SERIES = Preparation(
    kind="series", task="regression", target=TargetEncoding(name="y"), window=Window(length=4, horizon=25)
)


def test_every_model_meets_the_same_resamples():
    random = np.random.default_rng(0)
    target, guess = random.integers(0, 2, 300), random.random(300)
    one, two = (score(METRICS["roc_auc"], target, prediction, TABLE) for prediction in (guess, guess * 0.5))
    assert one.drawn.shape == (RESAMPLES,)
    assert np.array_equal(one.drawn, two.drawn), "ranks alone decide roc_auc"
    assert (one.value, one.num_rows) == (pytest.approx(METRICS["roc_auc"].value(target, guess)), 300)


def test_errors_that_hang_together_make_a_series_less_sure():
    random = np.random.default_rng(0)
    error = np.repeat(random.normal(size=20), 25)
    plain = SERIES.model_copy(update={"kind": "table", "window": None})
    together, apart = (score(METRICS["mae"], np.zeros(500), error, each).drawn.std() for each in (SERIES, plain))
    assert together > 2 * apart


def test_a_single_class_leaves_the_metric_undefined():
    found = score(METRICS["roc_auc"], np.ones(50, dtype=np.int64), np.linspace(0, 1, 50), TABLE)
    assert np.isnan(found.value)
    assert np.isnan(found.drawn).all()
