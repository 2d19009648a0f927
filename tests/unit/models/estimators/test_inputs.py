from dataclasses import replace

import numpy as np
import pytest

from models.estimators.inputs import input_plan
from models.estimators.rows import ROWS

FEATURES = np.array([[1.0, 5.0, 0.0, 2.0], [3.0, 5.0, 1.0, 0.0]], np.float32)


def test_trees_take_numbers_and_indices_as_they_are():
    plan = input_plan(ROWS["XGBClassifier"], FEATURES, [2, 3], None)
    assert np.array_equal(plan.matrix(FEATURES), FEATURES)


def test_linear_models_take_standardised_numbers_and_a_column_for_each_category():
    plan = input_plan(ROWS["Ridge"], FEATURES, [2, 3], None)
    assert plan.matrix(FEATURES).tolist() == [[-1, 0, 1, 0, 0, 0, 1], [1, 0, 0, 1, 1, 0, 0]]
    assert plan.matrix(FEATURES).dtype == np.float32


def test_gaps_count_neither_for_the_mean_nor_for_the_spread():
    gaps = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan]], np.float32)
    plan = input_plan(replace(ROWS["Ridge"], gaps=True), gaps, [], np.array([1.0, 5.0, 1.0]))
    assert (plan.shift, plan.scale) == ((2.0, 0.0), (1.0, 1.0))
    assert np.array_equal(plan.matrix(gaps)[:, 0], [-1, np.nan, 1], equal_nan=True)


def test_a_weight_of_two_counts_as_the_row_twice():
    weighted = input_plan(ROWS["Ridge"], FEATURES, [2, 3], np.array([2.0, 1.0]))
    doubled = input_plan(ROWS["Ridge"], FEATURES[[0, 0, 1]], [2, 3], None)
    assert weighted.shift == pytest.approx(doubled.shift)
    assert weighted.scale == pytest.approx(doubled.scale)
