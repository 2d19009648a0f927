"""Categories of many levels get the mean of the target as an input, which no row tells of itself."""

import numpy as np
import pyarrow as pa
import pytest

from models.data.prepare import prepare_table
from models.inputs.graph_builder import GraphBuilder
from models.inputs.nodes import write_nodes
from models.inputs.record import LearntFiles
from models.inputs.rows import encoded, prepared_columns
from models.inputs.target_mean.record import TargetMeanInput
from models.inputs.target_mean.rows import MANY_LEVELS, MOST_VALUES, PRIOR_ROWS
from models.project_spec.blocks import Spec
from tests.finished_jobs import run_stretch

ROWS, LEVELS = 3000, 200


def frame(levels=LEVELS, seed=0, slope=1.5):
    """Levels that decide two classes, a number and three classes; with a slope of 0 they say nothing."""
    draw = np.random.default_rng(seed)
    level = draw.integers(0, levels, ROWS)
    score = slope * draw.normal(size=levels)[level] + draw.normal(size=ROWS)
    columns = {"shop": [f"s{number}" for number in level], "x": draw.normal(size=ROWS), "number": score}
    return {
        **columns,
        "binary": np.where(score > 0, "yes", "no"),
        "multiclass": np.digitize(score, [-1, 1]).astype(str),
        "many": np.char.add("c", draw.integers(0, MOST_VALUES + 1, ROWS).astype(str)),
        "label a": (score > 0) * 1,
        "label b": (score > 1) * 1,
        "grade": np.digitize(score, [-1, 1]),
        "group": level // 2,
        "query": np.arange(ROWS) // 10,
        "when": np.arange(ROWS),
        "weight": np.where(score > 0, 3.0, 1.0),
    }


def prepared(columns, target="binary", goal=None, **data):
    block = {"source": "a.csv", "target": target, "features": {"columns": ["shop", "x"]}, **data}
    block.setdefault("split", {"by": "random", "test": 0.2})
    spec = Spec.model_validate({"name": "means", "data": block, "goal": goal or {}})
    return prepare_table(pa.table(columns), spec, base=None)


def means_of(columns, target="binary", **data):
    return [part.name for part in prepared(columns, target, **data)[1].of(TargetMeanInput)]


@pytest.mark.parametrize(
    ("target", "data", "names"),
    [
        ("binary", {}, ["binary by shop"]),
        ("number", {}, ["number by shop"]),
        ("number", {"quantiles": [0.1, 0.9]}, ["number by shop"]),
        ("multiclass", {}, ["class 1 by shop", "class 2 by shop", "class 3 by shop"]),
        (["label a", "label b"], {"task": "multilabel"}, ["label a by shop", "label b by shop"]),
        ("grade", {"task": "ranking", "split": {"by": "group", "column": "query"}}, ["grade by shop"]),
        ("many", {}, []),  # an input for each class would be too many
        ("binary", {"split": {"by": "time", "column": "when"}}, ["binary by shop"]),
        ("binary", {"split": {"by": "group", "column": "group"}}, []),  # nothing is known of a new group's levels
    ],
)
def test_every_task_has_means_or_a_reason_for_none(target, data, names):
    assert means_of(frame(), target, **data) == names


def test_few_levels_have_none():
    assert means_of(frame(MANY_LEVELS)) == []
    assert means_of(frame(MANY_LEVELS + 1)) == ["binary by shop"]


def test_means_of_noise_say_nothing_of_a_training_row():
    """In the sample they would: a level has fifteen rows, one of them the row itself."""
    rows, _ = prepared(frame(seed=3, slope=0.0), "number")
    mean, number = rows.column("__fitted:number by shop").to_numpy(), rows.column("number").to_numpy()
    train = rows.column("__split").to_numpy() == 0
    assert abs(np.corrcoef(mean[train], number[train])[0, 1]) < 0.1


def test_means_of_levels_that_decide_say_as_much_of_training_and_of_test_rows():
    rows, _ = prepared(frame(), "number")
    mean, number = rows.column("__fitted:number by shop").to_numpy(), rows.column("number").to_numpy()
    train = rows.column("__split").to_numpy() == 0
    told = [np.corrcoef(mean[part], number[part])[0, 1] for part in (train, ~train)]
    assert min(told) > 0.7
    assert abs(told[0] - told[1]) < 0.1


def test_a_level_has_the_mean_of_its_rows_drawn_to_that_of_all():
    columns = frame()
    rows, preparation = prepared(columns)
    (part,) = preparation.of(TargetMeanInput)
    shop, train = rows.column("shop").to_numpy(), rows.column("__split").to_numpy() == 0
    yes = rows.column("binary").to_numpy()[train] == "yes"
    expected = [
        (yes[shop[train] == s].sum() + PRIOR_ROWS * yes.mean()) / ((shop[train] == s).sum() + PRIOR_ROWS)
        for s in part.levels[:9]
    ]
    scale = (part.values[1] - part.values[2]) / (expected[0] - expected[1])
    np.testing.assert_allclose(np.array(part.values[1:10]) - part.values[0], scale * (expected - yes.mean()))


def test_a_row_of_weight_two_counts_twice():
    columns = frame()
    plain, weighted = (
        prepared(columns, "number", **data)[1].of(TargetMeanInput)[0] for data in ({}, {"weight": "weight"})
    )
    assert plain.levels == weighted.levels
    assert not np.allclose(plain.values, weighted.values, atol=0.05)


def test_the_graph_gives_new_and_missing_levels_the_mean_of_all():
    _, preparation = prepared(frame(), "multiclass")
    parts = preparation.of(TargetMeanInput)
    shops = [*parts[0].levels[:3], "new", "", "s"]
    raw = pa.table({"shop": [shop or None for shop in shops], "x": np.zeros(6)})
    columns = pa.table(prepared_columns(raw, preparation.inputs, LearntFiles()))
    expected = encoded(columns, parts, LearntFiles(), {})["numeric"]
    builder = GraphBuilder("core/")
    (output,) = write_nodes(builder, "numeric", parts, LearntFiles())
    (means,) = run_stretch(builder, {"shop": np.array(shops, object)}, [output])
    assert means.dtype == np.float32
    np.testing.assert_array_equal(means, expected)
    np.testing.assert_array_equal(means[3:], np.float32([[part.values[0] for part in parts]] * 3))
    assert np.abs(means[3:]).max() < 0.5  # in the middle of the training rows
