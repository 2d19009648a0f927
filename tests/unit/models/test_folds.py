"""Folds never divide a unit, are about equal, and follow the order of time where there is one."""

import numpy as np
import pytest

from models.folds import Units, rows_apart


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("num_units", [1, 3, 40])
def test_no_fold_divides_a_unit(num_units: int, in_order: bool) -> None:
    unit = np.random.default_rng(0).integers(0, num_units, 1000)
    fold = Units(unit, in_order).folds(5)
    assert all(len(np.unique(fold[unit == each])) == 1 for each in range(num_units))
    assert np.unique(fold).tolist() == list(range(min(5, num_units)))
    if num_units == 40:
        assert np.bincount(fold).min() > 120
    if in_order:
        assert (np.diff(fold[np.argsort(unit, kind="stable")]) >= 0).all()


def test_rows_apart_are_dealt_one_by_one() -> None:
    assert np.bincount(rows_apart(103).folds(4)).tolist() == [26, 26, 26, 25]
    assert len(rows_apart(0).folds(4)) == 0


def test_folds_of_many_units_in_order_are_those_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    units = Units(np.random.default_rng(0).integers(0, 90, 1000), in_order=True)
    whole = units.folds(5)
    monkeypatch.setattr("models.scratch.PART", 7)
    np.testing.assert_array_equal(units.folds(5), whole)
