"""The rule: no extreme value makes a scale explode or the other values one number, in any normalisation and stage."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.data.prepare import prepare_table
from models.errors import DataError
from models.export.preparation_graph import preparation_part
from models.feedback.active_learning import positions
from models.inference.portable import MODEL_FILE
from models.inputs.numeric.rows import MOST_SPREADS, encode_numeric
from models.metrics.metrics import METRICS
from models.monitoring.build import build
from models.project_spec.blocks import Spec
from tests.finished_jobs import run_stretch
from tests.goal_jobs import answers, fitted, prepared_table

RNG = np.random.default_rng(0)
NUM = 600
USUAL = RNG.integers(0, 100, NUM).astype(float)
SELDOM = np.arange(NUM) % 40 == 0
HEAVY = RNG.lognormal(0, 2.5, NUM)
COLUMNS = {
    "usual": USUAL,
    "heavy": HEAVY,
    "constant": np.full(NUM, 1.5),
    "mostly zero": np.where(np.arange(NUM) <= 20, np.arange(NUM) * 1e5, 0.0),
    "mostly zero, by noise": np.where(np.arange(NUM) <= 20, np.arange(NUM) * 1e5, RNG.normal(0, 1e-9, NUM)),
    "sentinel 1e18": np.where(SELDOM, 1e18, USUAL),
    "sentinel -1e18": np.where(SELDOM, -1e18, USUAL),
    "one cell of 1e200": np.where(np.arange(NUM) == 7, 1e200, USUAL),
    "mostly zero, and 1e18": np.where(np.arange(NUM) < 5, 1e18, np.where(np.arange(NUM) < 25, USUAL, 0.0)),
}
NORMALISATIONS = ["standard", "robust", "minmax", "none"]
TOLD = ["mostly zero, by noise", "sentinel 1e18", "sentinel -1e18", "mostly zero, and 1e18"]


def prepared(column, normalise):
    table = pa.table({"x": column, "y": np.where(USUAL > 50, "p", "q")})
    data = {"source": "d.csv", "target": "y", "features": {"normalise": normalise}, "split": {"by": "stratified"}}
    return table, prepare_table(table, Spec.model_validate({"name": "p", "data": data}), Path())[1]


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_inputs_are_bounded_and_differ_where_usual_values_do(name, normalise):
    table, preparation = prepared(COLUMNS[name], normalise)
    inputs = encode_numeric(COLUMNS[name], preparation.numeric[0])
    assert np.isfinite(inputs).all()
    if normalise != "none":
        assert np.abs(inputs).max() < 10 * MOST_SPREADS
    usual = COLUMNS[name][np.abs(COLUMNS[name]) < 1e17]
    num_inputs = len(np.unique(encode_numeric(usual, preparation.numeric[0])))
    assert num_inputs == len(np.unique(usual)) or name in TOLD
    assert [*preparation.extremes] == ["x"] * (name in TOLD)

    (served,) = run_stretch(preparation_part(preparation, {"numeric"}), {"x": COLUMNS[name]}, ["core/numeric"])
    np.testing.assert_array_equal(served[:, 0], inputs)
    assert np.isfinite(positions(table, preparation)).all()


@pytest.mark.parametrize("net", ["trees", "linear"])
def test_a_model_learns_the_other_values_of_a_column_with_a_sentinel(tmp_path, net):
    wrong = RNG.random(NUM) < 0.03
    columns = {"x": COLUMNS["sentinel 1e18"], "z": HEAVY, "y": np.where((USUAL > 50) ^ wrong, "p", "q")}
    spec_and_tensors = prepared_table(tmp_path / "table", columns, goal={"metric": "roc_auc"})
    job = fitted(tmp_path / "job", spec_and_tensors, net)
    target, predicted, preparation, _ = answers(job, tmp_path / "out")
    reference = build(job.prepared, tmp_path / "out" / MODEL_FILE, preparation)
    assert all(np.isfinite(column.counts).all() for column in reference.columns)
    if net == "trees":  # a line through the sentinel leaves the others little to say
        assert METRICS["roc_auc"].value(target, predicted) > 0.9


@pytest.mark.parametrize("task", [{"task": "regression"}, {"quantiles": [0.1, 0.9]}, {"target": ["y", "z"]}])
def test_a_target_without_a_finite_spread_is_refused(task):
    table = pa.table({"x": USUAL, "y": HEAVY * 1e200, "z": HEAVY})
    spec = Spec.model_validate({"name": "p", "data": {"source": "d.csv", "target": "y", **task}})
    with pytest.raises(DataError, match=r"data.target 'y': its spread is no finite number, because values reach"):
        prepare_table(table, spec, Path())


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_split_without_any_weight_is_refused(split):
    times = np.arange(NUM)
    weights = np.where(times * 3 // NUM == ["train", "validation", "test"].index(split), 0.0, 1.0)
    table = pa.table({"x": USUAL, "t": times, "w": weights, "y": np.where(USUAL > 50, "p", "q")})
    thirds = {"by": "time", "column": "t", "validation": 1 / 3, "test": 1 / 3}
    data = {"source": "d.csv", "target": "y", "weight": "w", "split": thirds}
    with pytest.raises(DataError, match=f"data.weight 'w': all 200 {split} rows weigh 0"):
        prepare_table(table, Spec.model_validate({"name": "p", "data": data}), Path())
