import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.monitoring.histogram import NUM_BINS, CategoricalBins, numeric_bins

NUMBERS = arrays(np.float64, st.integers(1, 60), elements=st.floats(-100, 100) | st.just(np.nan))
TEXTS = st.lists(st.sampled_from(["a", "b", "c", "z", "", None]), max_size=30)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_counting_parts_and_adding_is_counting_all(reference, first, second) -> None:
    bins = numeric_bins("x", reference)
    apart = bins.count(pa.array(first)) + bins.count(pa.array(second))
    assert (apart == bins.count(pa.array(np.r_[first, second]))).all()


@given(NUMBERS, NUMBERS)
def test_every_value_is_counted_once_or_missing(reference, values) -> None:
    bins = numeric_bins("x", reference)
    counts = bins.count(pa.array(values))
    assert len(counts) == bins.num_cells
    assert bins.values_of(counts).sum() == np.isfinite(values).sum()
    assert bins.num_missing(counts) == np.isnan(values).sum()
    assert bins.num_outside(counts) == ((values < bins.low) | (values > bins.high)).sum()


@given(TEXTS, TEXTS)
def test_categories_merge_and_tell_unseen_from_missing(first, second) -> None:
    bins = CategoricalBins(name="c", categories=["a", "b", "c"])
    counts = bins.count(pa.array(first, pa.string())) + bins.count(pa.array(second, pa.string()))
    both = first + second
    assert counts.tolist() == [
        *(both.count(text) for text in "abc"),
        both.count("z"),
        both.count(None) + both.count(""),
    ]
    assert bins.num_outside(counts) == both.count("z")
    assert bins.num_missing(counts) == both.count(None) + both.count("")


def test_bins_hold_about_as_many_training_values_each() -> None:
    values = np.random.default_rng(0).lognormal(size=100_000)
    bins = numeric_bins("x", values)
    counts = bins.values_of(bins.count(pa.array(values)))
    assert len(counts) == NUM_BINS
    assert counts.min() > 0.9 * 100_000 / NUM_BINS
    assert counts.max() < 1.1 * 100_000 / NUM_BINS


def test_few_different_values_get_a_bin_each() -> None:
    values = np.repeat([0.0, 1.0, 5.0], [500, 300, 200])
    bins = numeric_bins("x", values)
    counts = bins.values_of(bins.count(pa.array(values)))
    assert sorted(counts[counts > 0].tolist()) == [200, 300, 500]


def test_whole_numbers_booleans_and_nulls_are_counted_as_the_model_reads_them() -> None:
    bins = numeric_bins("x", np.arange(10.0))
    counts = bins.count(pa.chunked_array([[1, 2, None], [99]]))
    assert (bins.num_missing(counts), bins.num_outside(counts)) == (1, 1)
    digits = CategoricalBins(name="d", categories=["1", "2"])
    assert digits.count(pa.array([1.0, 2.0, 3.0, None])).tolist() == [1, 1, 1, 1]


def test_a_column_without_any_value_has_one_empty_bin() -> None:
    bins = numeric_bins("x", np.array([np.nan]))
    assert bins.count(pa.array([1.0, None])).tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize("constant", [0.0, 1.0, -3.5, 1e100, -1e-300])
def test_what_is_over_or_under_a_constant_is_not_it(constant: float) -> None:
    bins = numeric_bins("x", np.full(50, constant))
    under, over = np.nextafter(constant, -np.inf), np.nextafter(constant, np.inf)
    counts = bins.count(pa.array([under, constant, constant, over, np.nan]))
    assert bins.values_of(counts).tolist() == [1, 2, 1]
    assert bins.num_missing(counts) == 1
