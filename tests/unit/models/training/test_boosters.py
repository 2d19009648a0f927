"""Boosters of several outputs behave as one: grown together, written as one text, read back with the same bits."""

import lightgbm
import numpy as np
import pytest

from models.training.boosters import Boosters, num_leaves

QUIET = {"verbosity": -1, "min_data_in_leaf": 5, "num_threads": 1, "deterministic": True, "force_row_wise": True}


@pytest.fixture
def grown() -> tuple[Boosters, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 3))
    parameters = [{**QUIET, "objective": "regression", "metric": "l2"}] * 2
    train_sets = [lightgbm.Dataset(inputs, inputs[:, at], free_raw_data=False, params=QUIET) for at in range(2)]
    boosters = Boosters.first_round(parameters, train_sets, None, None)
    for _ in range(4):
        boosters.update(None)
    return boosters, inputs


def test_several_boosters_are_one_text(grown):
    boosters, inputs = grown
    again = Boosters.of_text(boosters.to_text())
    raw = boosters.raw(inputs, 0, 5, threads=1)
    assert raw.shape == (200, 2)
    np.testing.assert_array_equal(again.raw(inputs, 0, 5, threads=1), raw)
    assert num_leaves(boosters.to_text(rounds=2)) < num_leaves(boosters.to_text()) == _leaves(boosters)


def test_rounds_add_up(grown):
    boosters, inputs = grown
    first, rest = boosters.raw(inputs, 0, 2, threads=1), boosters.raw(inputs, 2, 5, threads=1)
    np.testing.assert_allclose(first + rest, boosters.raw(inputs, 0, 5, threads=1), atol=1e-12)
    errors = [float(np.mean((part - inputs[:, :2]) ** 2)) for part in (first, first + rest)]
    assert errors[1] < errors[0]
    assert boosters.train_loss() == pytest.approx(errors[1], rel=1e-3)


def _leaves(boosters):
    return sum(tree["num_leaves"] for booster in boosters.boosters for tree in booster.dump_model()["tree_info"])
