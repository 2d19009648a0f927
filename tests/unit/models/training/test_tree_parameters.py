"""Every parameter of LightGBM may be set, except those that Loopline owns; constraints name columns."""

import lightgbm
import numpy as np
import pytest

from models.data.preparation import Preparation
from models.errors import UsageError
from models.export.trained import validation_predictions
from models.inputs.gap.record import GapInput
from models.inputs.score.record import ScoreInput
from models.training.rank import run_job
from models.training.tree_parameters import (
    OWNED,
    check_parameter,
    is_sampled,
    known_parameters,
    settings,
    with_derived,
    with_positions,
)

OWN = list(settings())


def test_the_list_is_that_of_the_installed_lightgbm():
    known = known_parameters()
    assert {"path_smooth", "cat_l2", "extra_trees", "monotone_constraints", *OWN} - {"rounds"} <= known.keys()
    assert OWNED.keys() <= known.keys(), "an owned parameter that LightGBM does not have"
    assert not OWNED.keys() & {*OWN}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("path_smoth", 1.0, "did you mean 'path_smooth'"),
        ("n_estimators", 100, "trees call it 'rounds'"),
        ("metric", "huber", "Loopline sets it: leave it out; it follows from the goal"),
        ("boosting", "dart", "only gbdt resumes exactly"),
        ("path_smooth", "much", "expected a number"),
        ("monotone_constraints", [1, 0], "expected columns with 1"),
        ("interaction_constraints", ["a"], "expected lists of columns"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_reason(name, value, message):
    with pytest.raises(UsageError, match=message):
        check_parameter(name, value, OWN)


def test_constraints_are_put_by_position():
    arguments = {"monotone_constraints": {"b": -1}, "interaction_constraints": [["a", "c"]], "path_smooth": 2}
    assert with_positions(arguments, ["a", "b", "t", "t", "c"], ["a", "b"]) == {
        "monotone_constraints": [0, -1, 0, 0, 0],
        "interaction_constraints": [[0, 4]],
        "path_smooth": 2,
    }
    times = with_positions({"interaction_constraints": [["t"], ["a"]]}, ["a", "b", "t", "t"], ["a"])
    assert times["interaction_constraints"] == [[2, 3], [0]]
    with pytest.raises(UsageError, match="did you mean 'b'"):
        with_positions({"monotone_constraints": {"bb": 1}}, ["a", "b"], ["a", "b"])
    with pytest.raises(UsageError, match="'c' is no number"):
        with_positions({"monotone_constraints": {"c": 1}}, ["a", "c"], ["a"])


def test_a_constraint_of_a_column_holds_for_what_is_derived_from_it():
    derived = [
        GapInput(name="b is missing", of="b"),
        ScoreInput(name="rank of b", of="b", knots=[0.0, 1.0], scores=[-1.0, 1.0]),
        GapInput(name="c is missing", of="c"),
    ]
    assert with_derived({"monotone_constraints": {"b": -1}, "path_smooth": 2}, derived) == {
        "monotone_constraints": {"b": -1, "rank of b": -1},
        "path_smooth": 2,
    }
    grouped = with_derived({"interaction_constraints": [["a", "b"], ["c"]]}, derived)["interaction_constraints"]
    assert grouped == [["a", "b", "b is missing", "rank of b"], ["c", "c is missing"]]


def test_whatever_draws_at_random_divides_the_rounds():
    assert not is_sampled(settings())
    for name, value in (("extra_trees", True), ("feature_fraction_bynode", 0.5), ("data_sample_strategy", "goss")):
        assert is_sampled({**settings(), name: value})


def test_a_monotone_column_only_rises(make_job):
    arguments = {"rounds": 20, "monotone_constraints": {"x0": -1}, "min_data_in_leaf": 5, "path_smooth": 1.0}
    job = make_job("table", "binary", "trees", arguments, epochs=2)
    result = run_job(job)
    assert result.environment["parameters"]["monotone_constraints"] == [-1, 0, 0, 0]
    booster = lightgbm.Booster(model_file=job.folder / result.weights)
    rows = np.zeros((50, 4))
    rows[:, 0] = np.linspace(-3, 3, 50)
    assert (np.diff(booster.predict(rows)) <= 1e-12).all()
    assert len(validation_predictions(job, Preparation.load(job.prepared), np.arange(10))) == 10


def test_monotone_with_an_absolute_error_is_refused(make_job):
    job = make_job("table", "regression", "trees", {"monotone_constraints": {"x0": 1}}, epochs=1)
    with pytest.raises(UsageError, match=r"take rmse, r2, or for mae model\.arguments\.objective: regression"):
        run_job(job)
    arguments = {**job.model.arguments, "objective": "regression", "rounds": 20}
    squared = make_job("table", "regression", "trees", arguments, epochs=1)
    result = run_job(squared)
    assert result.environment["parameters"]["objective"] == "regression"
    assert "val_mae" in result.epochs[0], "the goal still chooses the number of rounds"


@pytest.mark.parametrize(
    ("task", "metric", "train", "message"),
    [
        ("binary", "roc_auc", {}, "got regression with goal.metric roc_auc, expected mae, rmse or r2"),
        ("regression", "mape", {}, "got regression with goal.metric mape"),
        ("regression", "mae", {"loss": "own.py:loss"}, "got regression beside train.loss: drop one of them"),
    ],
)
def test_an_objective_that_does_not_go_with_the_goal_is_refused(make_job, task, metric, train, message):
    job = make_job("table", task, "trees", {"objective": "regression"}, epochs=1, **train)
    job = job.model_copy(update={"metric": metric})
    with pytest.raises(UsageError, match=message):
        run_job(job)
