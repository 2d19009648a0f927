import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from models.judge.comparison import resample_models
from models.judge.verdict import Estimate
from models.metrics.bootstrap import time_blocks
from models.metrics.metrics import METRICS
from models.monitoring.performance import HORIZON_TESTS, POOLED, of_dependent, pooled, realised
from models.project_spec.monitor_and_retrain import Monitor
from tests.wide import wide

AUC, MAE = METRICS["roc_auc"], METRICS["mae"]


def labelled(num: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(0)
    chances = source.random(num)
    return (source.random(num) < chances).astype(np.int64), chances


def test_the_interval_lies_around_the_metric_and_narrows_with_labels() -> None:
    few, many = (realised(AUC, *labelled(num), Monitor()) for num in (300, 3000))
    assert few is not None
    assert many is not None
    for found, num in ((few, 300), (many, 3000)):
        assert found.value == pytest.approx(AUC.value(*labelled(num)))
        assert found.low < found.value < found.high
    assert many.high - many.low < (few.high - few.low) / 2


def test_too_few_labels_or_one_class_are_no_metric() -> None:
    assert realised(AUC, *labelled(99), Monitor()) is None
    assert realised(AUC, np.ones(500, np.int64), np.linspace(0, 1, 500), Monitor()) is None


@pytest.mark.parametrize(
    ("now", "promoted", "margin", "decayed"),
    [
        ((0.70, 0.69, 0.71), (0.73, 0.72, 0.74), 0.0, True),
        ((0.70, 0.68, 0.72), (0.73, 0.72, 0.74), 0.0, False),
        ((0.70, 0.69, 0.71), (0.73, 0.72, 0.74), 0.02, False),
        ((0.90, 0.89, 0.91), (0.73, 0.72, 0.74), 0.0, False),
        ((0.70, 0.69, 0.71), (0.73, None, None), 0.0, True),
    ],
)
def test_decay_of_one_window_is_more_than_the_critical_number_of_standard_errors(now, promoted, margin, decayed):
    def estimate(told, sign=1):
        value, low, high = (None if each is None else sign * each for each in told)
        return Estimate(value=value, low=low if sign > 0 else high, high=high if sign > 0 else low)

    monitor = Monitor(margin=margin)
    assert pooled(AUC, [(estimate(now), 500)], estimate(promoted), monitor).decayed is decayed
    assert pooled(MAE, [(estimate(now, -1), 500)], estimate(promoted, -1), monitor).decayed is decayed


def test_nothing_decays_without_labels_or_verdict_or_interval() -> None:
    now, then = Estimate(value=0.1, low=0.0, high=0.2), Estimate(value=0.7, low=0.6, high=0.8)
    assert pooled(AUC, [], then, Monitor()) is None
    assert pooled(AUC, [(now, 100)], None, Monitor()) is None
    assert pooled(AUC, [(now, 100), (Estimate(value=0.1), 100)], then, Monitor()) is None


def test_windows_count_by_their_labels_and_six_together_find_what_none_alone_does() -> None:
    low, then = Estimate(value=0.68, low=0.63, high=0.73), Estimate(value=0.75, low=0.73, high=0.77)
    assert not pooled(AUC, [(low, 1000)], then, Monitor()).decayed
    six = pooled(AUC, [(low, 1000)] * POOLED, then, Monitor())
    assert (six.decayed, six.num_windows) == (True, POOLED)
    assert six.estimate.high - six.estimate.low == pytest.approx(0.1 / np.sqrt(6))
    high = Estimate(value=0.98, low=0.93, high=1.0)
    mixed = pooled(AUC, [(low, 900), (high, 100)], then, Monitor())
    assert mixed.estimate.value == pytest.approx(0.71)


def measured(random: np.random.Generator, auc: float, num: int, share: float) -> tuple[Estimate, int]:
    """The ROC AUC of `num` scored rows with its 95 % interval by DeLong (Biometrics 44, 1988)."""
    positives = max(2, int(random.binomial(num, share)))
    scores = random.normal(size=num)
    scores[:positives] += ndtri(auc) * np.sqrt(2)
    ranks = np.argsort(np.argsort(scores)) + 1
    above = (ranks[:positives] - np.argsort(np.argsort(scores[:positives])) - 1) / (num - positives)
    below = 1 - (ranks[positives:] - np.argsort(np.argsort(scores[positives:])) - 1) / positives
    error = np.sqrt(above.var(ddof=1) / positives + below.var(ddof=1) / (num - positives))
    value = float(above.mean())
    return Estimate(value=value, low=value - 1.96 * error, high=value + 1.96 * error), num


def share_found(auc: float, num_windows: int, share: float, repeats: int) -> float:
    """How often a version that was promoted at .75 on 5,000 test rows decays within so many windows of 1,000 rows."""
    random, found = np.random.default_rng(11), 0
    for _ in range(repeats):
        promoted = measured(random, 0.75, 5000, share)[0]
        windows = [measured(random, auc, 1000, share) for _ in range(num_windows)]
        past = range(1, num_windows + 1)
        found += any(pooled(AUC, windows[max(0, end - POOLED) : end], promoted, Monitor()).decayed for end in past)
    return found / repeats


@pytest.mark.parametrize("repeats", [100, pytest.param(2000, marks=pytest.mark.soak)])
def test_a_fall_of_auc_is_found_within_six_windows_in_80_of_100_cases(repeats: int) -> None:
    assert share_found(0.67, 6, 0.05, repeats) >= 0.8


@pytest.mark.parametrize(
    ("share", "repeats"), [(0.05, 40), *(pytest.param(share, 600, marks=pytest.mark.soak) for share in (0.05, 0.2))]
)
def test_a_version_that_does_not_change_alarms_within_fifty_windows_in_at_most_10_of_100_cases(share, repeats) -> None:
    assert share_found(0.75, 50, share, repeats) <= 0.1


def early_labels(measurement: tuple[Estimate, int], random: np.random.Generator, share: float) -> list:
    """The same window at earlier looks, when it had 100 and 250 labels, and when it has all."""
    return [measured(random, 0.75, num, share) for num in (100, 250)] + [measurement]


@pytest.mark.parametrize("repeats", [20, pytest.param(600, marks=pytest.mark.soak)])
def test_horizons_that_do_not_change_alarm_within_fifty_windows_in_at_most_5_of_100_cases(repeats) -> None:
    random, found, num = np.random.default_rng(5), 0, 7

    def estimates(error: float) -> list[Estimate]:
        drawn = 1 + error * random.normal(size=num)
        return [Estimate(value=each, low=each - 1.96 * error, high=each + 1.96 * error) for each in drawn]

    for _ in range(repeats):
        promoted, windows = estimates(0.0134), [estimates(0.03) for _ in range(50)]
        for at in range(num):
            measured = [(each[at], 1000) for each in windows]
            tests = (
                pooled(MAE, measured[:end][-POOLED:], promoted[at], Monitor(), 0.95, HORIZON_TESTS * num)
                for end in range(1, 51)
            )
            if any(test.decayed for test in tests):
                found += 1
                break
    assert found / repeats <= 0.05


@pytest.mark.parametrize("repeats", [40, pytest.param(600, marks=pytest.mark.soak)])
def test_errors_that_depend_on_their_neighbours_alarm_rarely(repeats) -> None:
    """A random walk, forecast seven steps ahead by its last value: as if independent, half of the versions alarm."""
    random, found, num, ahead = np.random.default_rng(8), 0, 5000, 7

    def estimate(errors: np.ndarray, block: int) -> tuple[Estimate, int]:
        means = errors[: len(errors) // block * block].reshape(-1, block).mean(axis=1)
        value, reach = errors.mean(), 1.96 * means.std(ddof=1) / np.sqrt(len(means))
        return Estimate(value=value, low=value - reach, high=value + reach), len(errors)

    for _ in range(repeats):
        walk = np.cumsum(random.normal(size=num + 50_000 + ahead))
        errors = np.abs(walk[ahead:] - walk[:-ahead])
        promoted = estimate(errors[:num], 17)[0]  # the judge resamples blocks
        windows = [estimate(part, 1) for part in errors[num:].reshape(50, 1000)]
        tests = (pooled(MAE, windows[:end][-POOLED:], promoted, Monitor(), num_dependent=num) for end in range(1, 51))
        found += any(test.decayed for test in tests)
    assert found / repeats <= 0.1


def test_windows_whose_labels_come_late_alarm_no_more_often() -> None:
    random, repeats, found = np.random.default_rng(3), 30, 0
    for _ in range(repeats):
        promoted, past, alarms = measured(random, 0.75, 5000, 0.05)[0], [], False
        for _ in range(25):
            looks = early_labels(measured(random, 0.75, 1000, 0.05), random, 0.05)
            tests = [pooled(AUC, [*past[1 - POOLED :], look], promoted, Monitor()) for look in looks]
            alarms |= any(test is not None and test.decayed for test in tests)
            past.append(looks[-1])
        found += alarms
    assert found / repeats <= 0.1


def test_few_labels_are_tested_only_over_six_windows() -> None:
    now, then = Estimate(value=0.5, low=0.45, high=0.55), Estimate(value=0.75, low=0.73, high=0.77)
    assert pooled(AUC, [(now, 90)] * (POOLED - 1), then, Monitor()) is None
    assert pooled(AUC, [(now, 90)] * POOLED, then, Monitor()).decayed


def test_the_interval_of_resamples_is_that_of_delong() -> None:
    random = np.random.default_rng(0)
    target = (random.random(1000) < 0.2).astype(np.int64)
    by_resamples = realised(AUC, target, ndtr(random.normal(size=1000) + target), Monitor())
    by_formula = measured(random, float(ndtr(np.sqrt(0.5))), 1000, 0.2)[0]
    assert by_resamples.high - by_resamples.low == pytest.approx(by_formula.high - by_formula.low, rel=0.2)


def test_a_ranking_has_no_realised_metric_since_the_log_has_no_groups() -> None:
    target, prediction = labelled(3000)
    assert realised(METRICS["ndcg"], target, prediction, Monitor()) is None


def _steps(random: np.random.Generator, num: int) -> np.ndarray:
    """Errors of forecasts, each correlated with the one before by .8; the true mean absolute error is sqrt(2 / pi)."""
    drawn = random.normal(size=num + 50)
    for step in range(1, num + 50):
        drawn[step] = 0.8 * drawn[step - 1] + 0.6 * drawn[step]
    return np.abs(drawn[50:])


def _days(random: np.random.Generator, num: int) -> np.ndarray:
    """Errors of days of a hundred rows, of which three tenths of the variance are the day's; the same true error."""
    day = np.repeat(random.normal(size=num // 100), 100)
    return np.abs(np.sqrt(0.3) * day + np.sqrt(0.7) * random.normal(size=num))


@pytest.mark.parametrize("repeats", [40, pytest.param(600, marks=pytest.mark.soak)])
@pytest.mark.parametrize("errors", [_steps, wide(_days)])
def test_the_interval_of_dependent_rows_covers_the_true_metric(errors, repeats) -> None:
    """Of 95 % intervals 94 % do, up to three standard errors of the simulation; of those of independent rows half."""
    random, monitor, true = np.random.default_rng(3), Monitor(), np.sqrt(2 / np.pi)
    blocks, covered = time_blocks(3000, 100), np.zeros(2)
    for _ in range(repeats):
        test, window = errors(random, 3000), errors(random, 1000)
        verdict = resample_models(MAE, test, {"challenger": np.zeros(3000)}, 400, 0, blocks)
        promoted = verdict.estimate("challenger", 0.95)
        as_rows = realised(MAE, window, np.zeros(1000), monitor)
        assert as_rows is not None
        widened = of_dependent(as_rows, 1000, promoted, 3000, monitor.confidence)
        covered += [each.low <= true <= each.high for each in (as_rows, widened)]
    assert covered[0] / repeats < 0.75
    assert covered[1] / repeats > 0.94 - 3 * np.sqrt(0.94 * 0.06 / repeats)


def test_the_interval_of_independent_rows_or_without_a_verdict_stays() -> None:
    own = Estimate(value=0.8, low=0.7, high=0.85)
    promoted = Estimate(value=0.8, low=0.75, high=0.85)
    assert of_dependent(own, 100, promoted, None, 0.95) == own
    assert of_dependent(own, 100, None, 1000, 0.95) == own
    assert of_dependent(own, 10**6, promoted, 1000, 0.95) == own
    wide = of_dependent(own, 100, promoted, 1000, 0.95)
    assert (wide.low, wide.high) == pytest.approx((0.8 - 0.05 * 10**0.5, 0.8 + 0.05 * 10**0.5))
