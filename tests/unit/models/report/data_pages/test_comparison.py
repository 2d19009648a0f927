"""Two versions of the data: values that moved are told from chance, bins fit, rows are counted by their hashes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from models.report.data_pages.comparison import compare, in_same_bins, row_change
from models.validation import profiling
from models.validation.data_profile import ColumnProfile, DataProfile, Histogram, IdSketch


def column(values: list[float] | list[str], name: str = "x", kind: str = "numeric") -> ColumnProfile:
    array = pa.chunked_array([pa.array(values)])
    counted = profiling._counted(array, None, profiling.Groups.none(len(values)))
    return ColumnProfile(name=name, role="input", kind=kind, reason="", **counted)


def of(*columns: ColumnProfile) -> DataProfile:
    return DataProfile(source="", num_raw=1, num_prepared=1, num_counted=1, rows={}, columns=list(columns))


def normal(seed: int, mean: float = 0.0, num: int = 2000) -> list[float]:
    values: list[float] = np.random.default_rng(seed).normal(mean, size=num).tolist()
    return values


def test_a_shift_has_moved_and_another_sample_has_not() -> None:
    (same,) = compare(of(column(normal(0))), of(column(normal(1)))).columns
    assert not same.has_moved
    assert 0.5 * same.chance < same.moved < 2 * same.chance
    (moved,) = compare(of(column(normal(0))), of(column(normal(1, 1.0)))).columns
    assert moved.has_moved
    assert moved.moved == pytest.approx(0.383, abs=0.03)  # 2 Phi(1/2) - 1


def test_few_rows_move_by_chance_alone() -> None:
    changes = [
        compare(of(column(normal(seed, num=40))), of(column(normal(seed + 100, num=40)))).columns[0]
        for seed in range(60)
    ]
    assert sum(change.has_moved for change in changes) <= 3


def test_columns_that_came_went_or_changed_stand_first() -> None:
    before = of(column(normal(0), "stays"), column(normal(0), "goes"), column(["1", "2"] * 50, "code", "categorical"))
    after = of(column(normal(0), "stays"), column(normal(0), "comes"), column([1.0, 2.0] * 50, "code"))
    changes = {change.name: change.differences for change in compare(before, after).columns}
    assert list(changes)[-1] == "stays"
    assert changes == {"comes": ["came"], "goes": ["went"], "code": ["kind: categorical → numeric"], "stays": []}


def test_new_categories_move_their_share() -> None:
    (change,) = compare(of(column(["a"] * 80 + ["b"] * 20)), of(column(["a"] * 60 + ["c"] * 40))).columns
    assert change.moved == pytest.approx(0.4)
    assert change.shares is not None
    assert change.shares.labels == ["a", "c", "b"]


@pytest.mark.parametrize(
    ("before", "after"),
    [([0.0, 1.0], [1e6, 2e6]), ([1e-6, 2e-6], [1e12, 1.1e12]), ([3.0, 3.0], [4.0, 4.0]), ([-8.0, 8.0], [0.1, 0.2])],
)
def test_bins_of_any_two_ranges_fit(before: list[float], after: list[float]) -> None:
    (change,) = compare(of(column(before)), of(column(after))).columns
    assert change.shares is not None
    assert sum(change.shares.before) == pytest.approx(1)
    assert sum(change.shares.after) == pytest.approx(1)
    assert len(change.shares.labels) <= 64


def test_finer_bins_are_added_up() -> None:
    fine = Histogram(width=0.5, first=-2, counts=[[1, 1, 2, 3, 4, 0]])
    coarse = Histogram(width=1.0, first=-1, counts=[[0, 3, 8, 0]])
    shares = in_same_bins(fine, coarse)
    assert (shares.labels, shares.before, shares.after) == ([-1.0, 0.0], [4 / 11, 7 / 11], [3 / 11, 8 / 11])


def sketch(hashes: np.ndarray, most: int = 2048) -> IdSketch:
    least = np.unique(hashes)[:most]
    return IdSketch(num_rows=len(hashes), hashes=[int(value) for value in least], is_by_id=True)


def test_rows_that_came_and_went_are_exact_for_few_and_estimated_for_many() -> None:
    hashes = np.random.default_rng(0).integers(0, 2**64, 22_000, dtype=np.uint64)
    few = row_change(sketch(hashes[:100]), sketch(hashes[20:130]))
    assert few is not None
    assert (few.num_new, few.num_gone, few.num_same, few.is_exact) == (30, 20, 80, True)
    many = row_change(sketch(hashes[:20_000]), sketch(hashes[2_000:]))
    assert many is not None
    assert not many.is_exact
    assert many.num_same == pytest.approx(18_000, rel=0.04)
    grown = row_change(sketch(hashes[:100]), sketch(hashes))
    assert grown is not None
    assert grown.num_same <= 100
    nothing = row_change(sketch(hashes[:11_000]), sketch(hashes[11_000:]))
    assert nothing is not None
    assert nothing.num_same == 0
    other = sketch(hashes[:100]).model_copy(update={"is_by_id": False})
    assert row_change(sketch(hashes[:100]), other) is None
