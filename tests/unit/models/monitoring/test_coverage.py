import numpy as np

from models.data.target_encoding import OutputColumn
from models.monitoring.coverage import Coverage, coverage_of

QUANTILES = [OutputColumn(name=f"q{level}", column="y", quantile=level) for level in (0.1, 0.9)]


def test_coverage_counts_the_true_values_within_the_outermost_quantiles():
    target = np.repeat([[0.0], [1.0], [5.0], [2.0]], 2, axis=1)
    coverage = coverage_of(target, np.tile([0.0, 2.0], (4, 1)), QUANTILES)
    assert coverage == Coverage(intended=0.8, num_covered=3, num_rows=4)
    assert coverage_of(target[:0], target[:0], QUANTILES) is None
    assert coverage_of(target, target, [OutputColumn(name="a", column="a")] * 2) is None


def _changes(share_at_test: float, share_now: float, windows: int = 4000) -> float:
    """Return how often a window of 500 labels counts as changed from 1,000 test rows."""
    random = np.random.default_rng(0)
    before, now = random.binomial(1000, share_at_test, windows), random.binomial(500, share_now, windows)
    return float(
        np.mean(
            [
                Coverage(intended=0.8, num_covered=int(b), num_rows=500).has_changed(
                    Coverage(intended=0.8, num_covered=int(a), num_rows=1000)
                )
                for a, b in zip(before, now, strict=True)
            ]
        )
    )


def test_a_changed_coverage_is_found_and_an_unchanged_one_alarms_once_in_a_thousand():
    assert _changes(0.76, 0.76) <= 0.002
    assert _changes(0.80, 0.68) >= 0.9


def _covered_by_days(num_days: int, random: np.random.Generator) -> np.ndarray:
    """Whether ten shops' values are within an interval of 80 %, if all of a day are or are not: (day * shop,)."""
    return np.repeat(random.random(num_days) < 0.8, 10).astype(np.float64)


def test_the_coverage_of_series_that_move_together_seldom_counts_as_changed():
    random, alarms = np.random.default_rng(0), {True: 0, False: 0}
    days = np.repeat(np.arange(200), 10)
    for _ in range(400):
        before, now = (_covered_by_days(num, random) for num in (200, 50))
        target = np.stack([before, before], axis=1)
        for is_dated in alarms:
            since = coverage_of(target, np.tile([0.5, 1.5], (2000, 1)), QUANTILES, days if is_dated else None)
            assert since is not None
            window = Coverage(intended=0.8, num_covered=int(now.sum()), num_rows=len(now))
            alarms[is_dated] += window.has_changed(since)
    assert alarms[True] <= 4
    assert alarms[False] > 40, "without the times the test takes shops of a day as independent"
