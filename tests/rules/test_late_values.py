"""The rule: one late value stops nothing. A new class, a class of one row and a column collected lately are left out
or learnt, in every stage, and told; no message advises what the spec already has.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.data.feeds import slice_values
from models.data.prepare import prepare_table
from models.errors import DataError
from models.feedback.label_text import label_values
from models.inference.portable import MODEL_FILE
from models.judge.baseline import trivial_baseline
from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.metrics.metrics import metric_of
from models.monitoring.build import build
from models.project_spec.blocks import Judge, Spec
from models.serving.feedback import checked
from models.validation.single_predictors import single_predictors
from models.validation.unseen_categories import unseen_categories
from tasks.steps.judge import weighing
from tests.goal_jobs import answers, fitted, prepared_table

NUM = 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=NUM)
CLASSES = np.where(X + RNG.normal(0, 0.3, NUM) > 0, "p", "q").astype(object)
OLD = np.arange(NUM) < 0.86 * NUM
"""Rows before the last ones of validation; a split by time gives test the last 15 of 100."""
BY_TIME = {"by": "time", "column": "t"}
TEXTS = [f"the {word} of a long sentence about nothing {at % 7}" for at, word in enumerate(["cat", "dog"] * (NUM // 2))]
LATE = {
    "number": pa.array(np.where(OLD, np.nan, X)),
    "category": pa.array(np.where(OLD, None, "z")),
    "flag": pa.array(np.where(OLD, None, True)),
    "text": pa.array(np.where(OLD, None, TEXTS)),
    "date": pa.array(np.where(OLD, None, np.datetime64("2024-01-01", "us")), pa.timestamp("us")),
}


def table(**more):
    return {"t": np.arange(NUM), "x": X, "c": np.where(X > 1, "big", "small"), "y": CLASSES.tolist(), **more}


def with_class(name, places, of=CLASSES):
    classes = of.copy()
    classes[places] = name
    return classes.tolist()


def whole_loop(place, columns, net, arguments=None, **blocks):
    """Walk a table through the stages of the loop; return the verdict, the preparation and the graph's folder."""
    spec, tensors = prepared = prepared_table(place / "table", columns, judge={"slices": ["c"]}, **blocks)
    job = fitted(place / "job", prepared, net, arguments)
    target, predicted, preparation, _ = answers(job, place / "out")
    assert unseen_categories(job.prepared, preparation) == []
    baseline = trivial_baseline(preparation.task, target, target, len(preparation.target.classes))
    evidence = Evidence(
        task=preparation.task,
        target=target,
        challenger=predicted,
        champion=predicted,
        baseline=baseline.prediction,
        slices=slice_values(job.prepared, "test", ["c"]),
    )
    verdict = judge(evidence, Judge(resamples=100), metric_of(spec.goal, preparation, place))
    assert np.isfinite(verdict.challenger.value)
    reference = build(job.prepared, place / "out" / MODEL_FILE, preparation)
    assert all(column.num_rows for column in reference.columns)
    json.loads(verdict.model_dump_json())
    return verdict, preparation, tensors


def test_a_class_first_seen_in_the_last_rows_is_left_out(tmp_path):
    columns = table(y=with_class("new", [NUM - 3, NUM - 2, NUM - 90]))
    verdict, preparation, _ = whole_loop(tmp_path, columns, "trees", data={"split": BY_TIME})
    assert preparation.target.classes == ["p", "q"]
    assert preparation.dropped == {"of a class that no training row has ('new')": 3}
    assert sum(preparation.rows.values()) == NUM - 3
    assert verdict.challenger.value > 0.8

    # What is answered and labelled later: monitoring counts no label of the new class, and the server names it.
    labels = label_values(pa.chunked_array([["p", "new"]]), preparation.target)
    assert labels[0] == 0
    assert np.isnan(labels[1])
    with pytest.raises(DataError, match="a new class comes by rows at the source"):
        checked([{"id": "1", "label": "new"}], preparation)


@pytest.mark.parametrize("net", ["trees", "linear", "mlp"])
def test_a_class_of_one_row_trains(tmp_path, net):
    columns = table(y=with_class("rare", [NUM - 1]))
    split = {"split": {"by": "stratified"}}
    verdict, preparation, _ = whole_loop(tmp_path, columns, net, data=split, goal={"metric": "accuracy"})
    assert preparation.target.classes == ["p", "q", "rare"]
    assert preparation.dropped == {}
    assert verdict.challenger.value > 0.8


def split_of(columns, **blocks):
    spec = Spec.model_validate({"name": "p", "data": {"source": "d.csv", "target": "y", **blocks}})
    return prepare_table(pa.table(columns), spec, Path())


@pytest.mark.parametrize("num", [1, 2, 3])
@pytest.mark.parametrize("by", ["stratified", "random"])
def test_a_rare_class_stops_no_seed(num, by):
    columns = table(y=with_class("rare", np.arange(num)))
    for seed in range(8):
        preparation = split_of(columns, split={"by": by, "seed": seed})[1]
        assert "rare" in preparation.target.classes or preparation.dropped


def test_a_third_class_of_a_few_rows_is_left_out_of_a_binary_task(tmp_path):
    columns = table(y=with_class("maybe", [5, 50, NUM - 1]))
    verdict, preparation, _ = whole_loop(tmp_path, columns, "linear", data={"task": "binary"})
    assert preparation.dropped == {"of a class beside the two of data.task: binary ('maybe')": 3}
    assert verdict.task == "binary"
    with pytest.raises(DataError, match="got binary, but the target 'y' has 3 classes"):
        split_of(table(y=with_class("maybe", np.arange(0, NUM, 4))), task="binary")


def test_a_third_class_of_a_few_rows_is_left_out_where_one_of_two_is_the_positive_one():
    """Without `data.task` the rows made another task of it, for which `goal.positive` was refused."""
    blocks = {"data": {"source": "d.csv", "target": "y"}, "goal": {"positive": "p"}}
    spec, columns = Spec.model_validate({"name": "t", **blocks}), table(y=with_class("maybe", [5, 50]))
    preparation = prepare_table(pa.table(columns), spec, Path())[1]
    assert preparation.dropped == {"of a class beside the two of goal.positive ('maybe')": 2}
    assert preparation.target.classes == ["q", "p"]


@pytest.mark.parametrize("name", LATE)
def test_a_column_collected_lately_is_left_out(tmp_path, name):
    columns = table(late=LATE[name])
    rows, preparation = split_of(columns, split=BY_TIME, features={"columns": ["late", "x"]})
    assert preparation.left_out["late"] == "no training row has a value"
    assert preparation.columns == ["x"]
    assert single_predictors(rows, preparation) == {}


def test_a_model_beside_late_columns_walks_the_loop_and_is_sliced_by_one(tmp_path):
    columns = table(**{f"late {name}": values for name, values in LATE.items()}, c=LATE["category"])
    constraints = {
        "monotone_constraints": {"x": 1, "late number": 1},
        "interaction_constraints": [["x", "late number"]],
    }
    verdict, preparation, _ = whole_loop(tmp_path, columns, "trees", constraints, data={"split": BY_TIME})
    assert preparation.columns == ["x"]
    assert [(one.value, one.num_samples) for one in verdict.slices] == [("z", int((~OLD).sum())), ("missing", 4)]


def test_a_column_of_series_collected_lately_is_left_out():
    times = (np.datetime64("2024-01-01") + np.arange(NUM)).astype("datetime64[us]")
    window = {"kind": "series", "window": {"length": 8}, "split": BY_TIME}
    _, preparation = split_of({"t": times, "y": X, "z": X, "late": LATE["number"]}, **window)
    assert [part.name for part in preparation.numeric] == ["y", "z"]
    assert preparation.left_out["late"] == "no training row has a value"


@pytest.mark.parametrize("by", ["stratified", "random", "time"])
@pytest.mark.parametrize("classes", [["p"] * NUM, [f"k{at}" for at in range(NUM)]])
def test_no_message_advises_the_split_that_the_spec_has(by, classes):
    with pytest.raises(DataError) as caught:
        split_of(table(y=classes), split=BY_TIME if by == "time" else {"by": by})
    assert "data.target" in str(caught.value) or "'y'" in str(caught.value)
    assert f"split by {by}" not in str(caught.value)


@pytest.mark.parametrize("weights", ["none", "balanced"])
@pytest.mark.parametrize("metric", ["accuracy", "f1", "log_loss"])
def test_a_rare_class_that_is_never_predicted_gets_a_cure_that_the_spec_has_not(weights, metric):
    data, train = {"source": "d.csv", "target": "y"}, {"class_weights": weights}
    cure = weighing(Spec.model_validate({"name": "p", "data": data, "goal": {"metric": metric}, "train": train}))
    assert cure
    assert ("class_weights" in cure) == (weights == "none")
    assert ("f1" in cure) == (metric == "accuracy")
