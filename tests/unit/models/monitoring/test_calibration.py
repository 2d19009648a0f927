import numpy as np
import pytest

from models.monitoring.calibration import Calibration, fit_calibration


def test_chances_stated_too_boldly_are_put_right() -> None:
    source = np.random.default_rng(0)
    honest = source.random(20_000)
    target = (source.random(20_000) < honest).astype(np.int64)
    bold = 1 / (1 + ((1 - honest) / honest) ** 3)
    found = fit_calibration(target, bold)
    assert found is not None
    assert np.abs(found.chances(bold)[:, 1] - honest).mean() < 0.02


def test_chances_of_many_classes_sum_to_one_and_the_curves_rise() -> None:
    source = np.random.default_rng(0)
    stated = source.dirichlet([1, 1, 1], 3000)
    found = fit_calibration(source.integers(0, 3, 3000), stated)
    assert found is not None
    assert found.chances(stated).sum(axis=1) == pytest.approx(np.ones(3000))
    assert all(curve.observed == sorted(curve.observed) for curve in found.curves)
    assert Calibration.model_validate_json(found.model_dump_json()) == found


def test_nothing_is_calibrated_on_nothing() -> None:
    assert fit_calibration(np.zeros(0, np.int64), np.zeros(0)) is None


@pytest.mark.parametrize("order", [np.argsort, lambda target: np.arange(len(target))])
def test_equal_scores_are_one_point_in_whatever_order_the_rows_come(order) -> None:
    source = np.random.default_rng(0)
    stated = source.choice([0.3, 0.6], 4000)
    target = (source.random(4000) < stated).astype(np.int64)
    rows = order(target)
    found = fit_calibration(target[rows], stated[rows])
    assert found is not None
    came = [target[stated == score].mean() for score in (0.3, 0.6)]
    assert found.chances(np.array([0.3, 0.6]))[:, 1] == pytest.approx(came)
