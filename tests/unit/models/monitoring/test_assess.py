import re
from dataclasses import replace

import numpy as np
import pytest

from models.data.target_encoding import OutputColumn
from models.judge.verdict import Estimate
from models.metrics.metrics import METRICS
from models.monitoring.assess import ALL_WELL, AssessmentRules, WindowPredictions, assess, state_of, sum_up
from models.monitoring.tally import PredictionCounts, tally
from models.project_spec.monitor_and_retrain import Monitor
from tests.unit.models.monitoring.conftest import breach, chance, decayed, drift, logged, reference, rows, truth, window

WATCHED = AssessmentRules(
    "1", Monitor(), METRICS["roc_auc"], reference(), Estimate(value=0.82, low=0.81, high=0.83), {}
)


def predicted(shift: float = 0.0, right: bool = True, labels: int = 1000) -> WindowPredictions:
    table = rows(1000, seed=9, shift=shift)
    stated = chance(table.column("wind").to_numpy())
    return WindowPredictions(
        first=0,
        begin=0.0,
        end=10.0,
        tally=tally(logged(table), reference()),
        whole=True,
        num_labels=labels,
        target=truth(table, right=right)[:labels],
        prediction=stated[:labels],
        scores=stated,
    )


def test_a_window_like_the_test_rows_is_green() -> None:
    found = assess(predicted(), WATCHED)
    assert (found.state, found.reason, found.decayed) == ("green", ALL_WELL, False)
    assert found.realised is not None
    assert found.estimated == pytest.approx(found.realised.value, abs=0.04)
    assert [one.name for one in found.features] == ["gust", "wind", "colour"] or len(found.features) == 3


def test_labels_that_say_otherwise_are_decay_which_no_estimate_sees() -> None:
    found = assess(predicted(right=False), WATCHED)
    assert (found.state, found.decayed) == ("red", True)
    assert found.estimated is not None
    assert found.estimated > 0.75


def test_without_labels_drift_is_all_there_is() -> None:
    found = assess(predicted(shift=0.7, labels=0), WATCHED)
    assert (found.realised, found.decayed, found.num_measured) == (None, False, 0)
    assert found.state == "amber"
    assert found.reason.startswith("the predictions drift: score (PSI ")


def test_a_regression_has_no_estimate_and_a_version_without_reference_only_labels() -> None:
    numbers = replace(WATCHED, metric=METRICS["mae"], reference=None, promoted=Estimate(value=0.1, low=0.09, high=0.11))
    some = predicted()
    found = assess(replace(some, target=some.prediction + 5.0), numbers)
    assert (found.estimated, found.features, found.predictions) == (None, [], [])
    assert found.decayed


def test_the_worst_speaks_first() -> None:
    ill = {"predictions": [drift(level="warn")], "features": [drift("temp", 0.3, "strong")]}
    assert state_of(decayed(0, breaches=[breach()], **ill))[1].startswith("distance: 40 %")
    assert state_of(decayed(0, **ill)) == ("red", "the realised metric is worse than at promotion")
    assert state_of(window(0, **ill)) == ("amber", "the predictions drift: score (PSI 0.01)")
    assert state_of(window(0, features=ill["features"])) == ("amber", "features drift: temp (PSI 0.30)")


def test_all_of_it_is_summed_up() -> None:
    found = sum_up("flights", 5.0, [window(0)], WATCHED, num_predictions=1000)
    assert (found.champion, found.metric, found.state, found.num_predictions) == ("1", "roc_auc", "green", 1000)
    assert sum_up("flights", 5.0, [], None).reason == "there is no champion to monitor"
    assert np.isclose(found.at, 5.0)


HORIZONS = [OutputColumn(name=f"h{ahead}", column=f"h{ahead}", horizon=ahead) for ahead in (1, 7, 14)]


def of_horizons(errors: tuple[float, ...]) -> WindowPredictions:
    """A window whose errors have these sizes; no column is counted."""
    noise = np.random.default_rng(0).normal(size=(1000, 3)) * errors
    counts = PredictionCounts(num_rows=1000)
    return WindowPredictions(0, 0.0, 10.0, counts, True, 1000, noise, np.zeros_like(noise), np.zeros(0))


def test_a_horizon_that_decays_alone_is_named() -> None:
    """The mean of the horizons gains at one what it loses at another."""
    usual = 0.8  # the mean absolute value of a normal number
    watched = AssessmentRules(
        "1",
        Monitor(),
        METRICS["mae"].of(HORIZONS),
        promoted=Estimate(value=usual, low=usual - 0.02, high=usual + 0.02),
        outputs=HORIZONS,
        promoted_horizons={each.name: Estimate(value=usual, low=0.78, high=0.82) for each in HORIZONS},
    )
    same = assess(of_horizons((1.0, 1.0, 1.0)), watched)
    assert (same.state, [each.name for each in same.horizons]) == ("green", ["h1", "h7", "h14"])
    apart = assess(of_horizons((1.0, 1.3, 0.7)), watched)
    assert (apart.decayed, [each.name for each in apart.decayed_horizons]) == (False, ["h7"])
    assert state_of(apart) == ("red", "the realised metric of h7 is worse than at promotion")
    report = sum_up("sales", 5.0, [apart], watched)
    assert report.state == "red"
    assert re.fullmatch(r"mae of h7 1\.\d+ \(.* to .*\), promoted with 0.8 \(0.78 to 0.82\)", report.reason)
