"""Columns of numbers and times with gaps get an input that says so, and the graph gives it the same bits."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from models.data.prepare import prepare_table
from models.inputs.gap.record import GapInput
from models.inputs.gap.rows import FEWEST_ROWS, is_informative
from models.inputs.graph_builder import GraphBuilder
from models.inputs.nodes import write_nodes
from models.inputs.record import LearntFiles
from models.inputs.rows import encoded
from models.project_spec.blocks import Spec
from tests.finished_jobs import run_stretch

GAPS = [GapInput(name=f"{name} is missing", of=name) for name in ("age", "day")]
ROWS = 100


def prepared(columns, y=None, **features):
    data = {"source": "a.csv", "target": "y", "split": {"by": "position"}, "features": features}
    spec = Spec.model_validate({"name": "gaps", "data": data})
    y = np.arange(ROWS) % 2 if y is None else y
    return prepare_table(pa.table({**columns, "y": np.where(y, "yes", "no")}), spec, base=None)


def gaps_of(columns, **features):
    return [part.of for part in prepared(columns, **features)[1].of(GapInput)]


def holed(every, start=0, stop=ROWS):
    rows = np.arange(ROWS)
    return pa.array([None if start <= row < stop and row % every == 0 else row * 1.0 for row in rows])


def test_gaps_of_numbers_and_times_are_inputs_and_others_are_none():
    days = (np.datetime64("2024-01-01") + np.arange(ROWS)).tolist()
    columns = {
        "age": holed(3),
        "income": holed(3),  # missing with the age: one gap says both
        "rare": holed(20),
        "late": holed(2, start=75),  # without a gap in training
        "whole": np.arange(ROWS),
        "day": pa.array([None if row % 4 == 0 else day for row, day in enumerate(days)]),
        "city": pa.array([None if row % 3 == 0 else f"c{row % 5}" for row in range(ROWS)]),
    }
    assert gaps_of(columns) == ["age", "day"]


def test_a_column_of_that_name_is_the_gap_of_a_user():
    columns = {"age": holed(3), "age is missing": np.arange(ROWS) % 3 == 0}
    assert gaps_of(columns) == []


def test_a_series_has_no_gaps():
    """A window's gaps are its last known values."""
    hours = np.datetime64("2024-01-01T00:00", "us") + np.arange(ROWS).astype("timedelta64[h]")
    data = {"source": "a.csv", "kind": "series", "target": "y", "window": {"length": 4, "horizon": 1}}
    spec = Spec.model_validate({"name": "gaps", "data": {**data, "split": {"by": "time", "column": "t"}}})
    _, preparation = prepare_table(pa.table({"t": hours, "x": holed(3), "y": np.arange(ROWS) * 1.0}), spec, base=None)
    assert preparation.of(GapInput) == []


@pytest.mark.parametrize(("missing", "tells"), [(FEWEST_ROWS - 1, False), (FEWEST_ROWS, True), (91, False)])
def test_a_gap_needs_rows_with_and_without_a_value(missing, tells):
    assert is_informative(np.arange(ROWS) < missing) is tells


@pytest.mark.parametrize("features", [{}, {"normalise": "none"}, {"impute": "zero", "normalise": "minmax"}])
def test_a_gap_is_a_one_beside_its_number_however_that_is_filled(features):
    rows, preparation = prepared({"age": holed(3)}, **features)
    assert [part.kind for part in preparation.inputs] == ["numeric", "gap"]
    gaps = encoded(rows, preparation.inputs, LearntFiles(), {})["numeric"][:, 1]
    np.testing.assert_array_equal(gaps, np.isnan(rows.column("age").to_numpy()))


@pytest.mark.parametrize(("meaning", "least_gain"), [(0.9, 0.05), (0.5, -0.01)])
def test_a_linear_model_learns_what_gaps_say_and_loses_nothing_where_they_say_nothing(meaning, least_gain):
    """By the median in its place a gap is the usual value: the gain is of ROC AUC on other rows."""
    draw = np.random.default_rng(0)
    missing, age = draw.random(4000) < 0.3, draw.normal(size=4000)
    y = draw.random(4000) < np.where(missing, meaning, 1 / (1 + np.exp(-age)))
    rows, preparation = prepared({"age": np.where(missing, np.nan, age)}, y=y)
    numeric, train = encoded(rows, preparation.inputs, LearntFiles(), {})["numeric"], np.arange(4000) < 2000
    with_gap, without = (
        roc_auc_score(y[~train], LogisticRegression().fit(inputs[train], y[train]).predict_proba(inputs[~train])[:, 1])
        for inputs in (numeric, numeric[:, :1])
    )
    assert with_gap - without > least_gain


def test_the_graph_says_the_same_of_any_value():
    columns = {"age": np.array([1.0, np.nan, 1e30, -0.0]), "day": np.array([np.nan, 0.0, -1e9, np.nan])}
    builder = GraphBuilder("core/")
    (output,) = write_nodes(builder, "numeric", GAPS, LearntFiles())
    (gaps,) = run_stretch(builder, columns, [output])
    expected = encoded(pa.table(columns), GAPS, LearntFiles(), {"numeric": np.zeros((4, 0), np.float32)})["numeric"]
    assert gaps.dtype == expected.dtype
    np.testing.assert_array_equal(gaps, expected)
    np.testing.assert_array_equal(gaps, [[0, 1], [1, 0], [0, 0], [0, 1]])
