"""The rule's false alarms and power are measured here, on made-up columns, against what was measured on flights."""

import numpy as np
import pyarrow as pa
import pytest

from models.monitoring.drift import FEWEST_PAST, comparable, feature_drift, score_drift
from models.monitoring.histogram import numeric_bins
from models.monitoring.reference import Reference, ReferenceColumn
from models.monitoring.tally import PredictionCounts, tally
from models.project_spec.monitor_and_retrain import Monitor
from tests.unit.models.monitoring.conftest import drift, logged, reference, rows, window

NUM_FEATURES = 13
WATCH = Monitor()


@pytest.fixture(scope="module")
def columns() -> list[ReferenceColumn]:
    values = np.random.default_rng(0).standard_normal(50_000)
    bins = [numeric_bins(f"x{place}", values) for place in range(NUM_FEATURES)]
    return [ReferenceColumn(bins=each, counts=each.count(pa.array(values))) for each in bins]


def share_of_alarms(columns: list[ReferenceColumn], num_rows: int, shift: float, tries: int = 100) -> float:
    """How often any feature alarms when the first has moved by `shift` standard deviations."""
    source = np.random.default_rng(1)
    alarms = 0
    for _ in range(tries):
        values = source.standard_normal((NUM_FEATURES, num_rows))
        values[0] += shift
        counts = {
            f"input.{each.name}": each.bins.count(pa.array(row)) for each, row in zip(columns, values, strict=True)
        }
        found = feature_drift(PredictionCounts(num_rows, counts), columns, WATCH)
        alarms += any(one.level != "none" for one in found)
    return alarms / tries


def test_false_alarms_and_power_are_as_measured_on_flights(columns: list[ReferenceColumn]) -> None:
    assert share_of_alarms(columns, 1000, 0.0) == 0.0
    assert share_of_alarms(columns, 1000, 0.25) >= 0.8
    assert share_of_alarms(columns, 1000, 0.5, tries=20) == 1.0


def test_few_rows_do_not_cry_wolf(columns: list[ReferenceColumn]) -> None:
    assert share_of_alarms(columns, 200, 0.0) <= 0.05


def test_the_furthest_comes_first_and_what_is_told_is_told() -> None:
    found = feature_drift(tally(logged(rows(2000, seed=3, shift=1.0)), reference()), reference().columns, WATCH)
    assert [one.name for one in found] == ["wind", "gust", "colour"]
    first = found[0]
    assert (first.level, first.num_values) == ("strong", 2000)
    assert first.wasserstein == pytest.approx(1.0, abs=0.1)
    assert first.ks == pytest.approx(0.38, abs=0.05)
    assert found[2].level == "none"
    assert found[2].ks is None


def test_the_score_drifts_with_what_it_is_made_of() -> None:
    quiet, moved = (tally(logged(rows(2000, seed=3, shift=shift)), reference()) for shift in (0.0, 0.7))
    assert [one.level for one in score_drift(quiet, reference().scores, WATCH)] == ["none"]
    assert [one.level for one in score_drift(moved, reference().scores, WATCH)] == ["strong"]


def test_a_seasonal_feature_is_shown_and_never_drifts() -> None:
    moved = tally(logged(rows(2000, seed=3, shift=1.0)), reference())
    wind = next(
        one for one in feature_drift(moved, reference().columns, Monitor(seasonal=["wind"])) if one.name == "wind"
    )
    assert (wind.seasonal, wind.level) == (True, "none")
    assert wind.psi is not None
    assert wind.psi > 0.5


def test_the_limits_rise_to_what_past_windows_had() -> None:
    moved = tally(logged(rows(2000, seed=3, shift=0.5)), reference())
    past = [window(number, features=[drift("wind", psi=0.9)]) for number in range(FEWEST_PAST)]
    wind = next(one for one in feature_drift(moved, reference().columns, WATCH, past) if one.name == "wind")
    assert (wind.warn_at, wind.strong_at, wind.level) == (0.9, 0.9, "none")
    few = next(one for one in feature_drift(moved, reference().columns, WATCH, past[1:]) if one.name == "wind")
    assert (few.warn_at, few.level) == (0.05, "strong")


def test_only_windows_of_the_same_length_and_not_the_last_ones_are_comparable() -> None:
    past = [window(number) for number in range(5)]
    long, filling = window(5, num_predictions=9000), window(6, whole=False)
    assert [one.id for one in comparable([*past, long, filling], 1000, WATCH)] == ["1/0", "1/1", "1/2"]


def test_a_column_that_is_all_missing_has_no_test() -> None:
    table = rows(500).set_column(0, "wind", [pa.nulls(500, pa.float64())])
    found = feature_drift(tally(logged(table), reference()), reference().columns, WATCH)
    wind = next(one for one in found if one.name == "wind")
    assert (wind.psi, wind.p_holm, wind.level, wind.nulls) == (None, None, "none", 1.0)


def test_no_reference_columns_no_drift() -> None:
    empty = Reference(task="binary", scores=[])
    assert feature_drift(PredictionCounts(), empty.columns, WATCH) == []
