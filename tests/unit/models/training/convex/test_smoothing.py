"""Exponential smoothing as maps: a window that goes on as it was is continued, and the maps are the recursion's."""

import numpy as np
import pytest

from models.training.convex.smoothing import smoothing_maps


@pytest.mark.parametrize("season", [None, 4])
def test_a_shift_of_the_window_shifts_the_forecast(season: int | None) -> None:
    np.testing.assert_allclose(smoothing_maps(12, season, [1, 3]).sum(axis=2), 1.0)


def test_a_season_around_a_level_goes_on_at_each_horizon() -> None:
    pattern = 50 + np.array([3.0, -1.0, 5.0, -7.0])
    maps = smoothing_maps(12, 4, [1, 2, 5])
    seasonal = maps[len(smoothing_maps(12, None, [1])) :]
    np.testing.assert_allclose(seasonal @ np.tile(pattern, 3), np.tile(pattern[[0, 1, 0]], (len(seasonal), 1)))


def test_without_trend_and_season_it_is_simple_exponential_smoothing() -> None:
    window = np.random.default_rng(0).normal(size=9)
    level = window[0]
    for value in window[1:]:
        level += 0.4 * (value - level)
    assert np.isclose(smoothing_maps(9, None, [1])[:, 0] @ window, level).any()


def test_the_last_value_is_a_case_of_it_and_a_trend_is_followed_at_a_falling_rate() -> None:
    window = np.arange(30.0)
    forecasts = smoothing_maps(30, None, [1, 2, 3]) @ window
    assert np.isclose(forecasts, 29.0).all(axis=1).any()
    steps = np.diff(forecasts[forecasts[:, 0] > 29.2], axis=1)
    assert len(steps)
    assert (steps[:, 1] < steps[:, 0]).all()


def test_a_window_of_less_than_two_seasons_is_smoothed_without_them() -> None:
    np.testing.assert_array_equal(smoothing_maps(7, 4, [1]), smoothing_maps(7, None, [1]))
