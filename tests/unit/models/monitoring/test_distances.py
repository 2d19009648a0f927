import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.monitoring import distances

COUNTS = st.lists(st.integers(0, 1000), min_size=2, max_size=20).map(lambda counts: np.array([*counts, 1]))
PAIRS = st.integers(2, 12).flatmap(
    lambda size: st.tuples(*[st.lists(st.integers(0, 500), min_size=size, max_size=size).map(np.array)] * 2)
)


@given(COUNTS)
def test_what_is_equal_lies_nowhere_apart(counts) -> None:
    assert distances.psi(counts, counts) == 0.0
    assert distances.jensen_shannon(counts, counts) == 0.0
    assert distances.kolmogorov_smirnov(counts, counts) == 0.0
    assert distances.g_test(counts, counts)[1] == pytest.approx(1.0)


@given(PAIRS)
def test_distances_are_symmetric_and_bounded(pair) -> None:
    first, second = (counts + 1 for counts in pair)
    assert distances.psi(first, second) == pytest.approx(distances.psi(second, first), abs=1e-12)
    assert distances.psi(first, second) >= 0
    assert 0 <= distances.jensen_shannon(first, second) <= 1
    assert 0 <= distances.kolmogorov_smirnov(first, second) <= 1


def test_psi_is_the_textbooks() -> None:
    before, after = np.array([5000, 3000, 2000]), np.array([4000, 3000, 3000])
    told = (0.4 - 0.5) * np.log(0.4 / 0.5) + (0.3 - 0.2) * np.log(0.3 / 0.2)
    assert distances.psi(before, after) == pytest.approx(told, rel=1e-3)


def test_an_emptied_cell_is_far_and_finite() -> None:
    assert 1.0 < distances.psi(np.array([500, 500]), np.array([0, 1000])) < 10.0


def test_g_is_scipys_without_the_correction() -> None:
    table = np.array([[300, 400, 300], [33, 38, 29]])
    statistic, p_value = distances.g_test(*table)
    theirs = stats.chi2_contingency(table, lambda_="log-likelihood", correction=False)
    assert statistic == pytest.approx(theirs.statistic, rel=0.02)
    assert p_value == pytest.approx(theirs.pvalue, rel=0.02)


def test_ks_and_wasserstein_are_near_the_exact_ones() -> None:
    from models.monitoring.histogram import numeric_bins

    source = np.random.default_rng(0)
    before, after = source.standard_normal(50_000), source.standard_normal(20_000) * 1.1 + 0.3
    bins = numeric_bins("x", before)
    counts = [np.bincount(bins.grid.place(values), minlength=len(bins.edges) + 1) for values in (before, after)]
    assert distances.kolmogorov_smirnov(*counts) == pytest.approx(stats.ks_2samp(before, after).statistic, abs=0.004)
    moved = distances.wasserstein(*counts, bins.edges, bins.low, bins.high)
    assert moved == pytest.approx(stats.wasserstein_distance(before, after), rel=0.05)


def test_ten_groups_of_equal_weight() -> None:
    groups = distances.group_numeric(np.full(256, 100))
    assert distances.grouped(np.full(256, 100), groups).tolist() == pytest.approx([2560] * 10, rel=0.05)
    skewed = distances.group_numeric(np.array([0, 9000, 0, 500, 500]))
    assert distances.grouped(np.array([0, 9000, 0, 500, 500]), skewed).tolist() == [9000, 1000]


def test_a_constant_that_varies_is_far() -> None:
    before, after = np.array([0, 5000, 0]), np.array([10, 480, 510])
    few, now = (distances.grouped(counts, distances.group_numeric(before)) for counts in (before, after))
    assert distances.psi(few, now) > 1.0
    assert distances.g_test(few, now)[1] < 1e-9


def test_rare_and_unseen_categories_share_a_group() -> None:
    counts = np.array([*range(100, 0, -5), 0])
    assert distances.grouped(counts, distances.group_categorical(counts)).tolist() == [
        *range(100, 55, -5),
        sum(range(55, 0, -5)),
    ]


def test_shares_differ_when_they_do() -> None:
    assert distances.shares_differ(50, 1000, 500, 10_000) == pytest.approx(1.0)
    assert distances.shares_differ(100, 1000, 500, 10_000) < 1e-8
    assert distances.shares_differ(0, 0, 5, 10) == distances.shares_differ(0, 10, 0, 10) == 1.0
