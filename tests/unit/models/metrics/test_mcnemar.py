"""McNemar's test against published numbers."""

import numpy as np
import pytest

from models.metrics.mcnemar import DiscordantPairs, difference, discordant, midp


def test_midp_equals_the_published_example():
    # Fagerland et al. (2013), table 2 and 6: 1 and 7 discordant pairs of 21: mid-p .039.
    assert midp(DiscordantPairs(1, 7, 21)) == pytest.approx(0.039, abs=5e-4)
    assert midp(DiscordantPairs(7, 1, 21)) == midp(DiscordantPairs(1, 7, 21))


def test_classifiers_that_never_differ_or_win_equally_often_are_equal():
    assert midp(DiscordantPairs(0, 0, 50)) == 1.0
    assert midp(DiscordantPairs(4, 4, 50)) == 1.0


def test_the_interval_lies_around_the_gain_and_narrows_with_examples():
    gain, low, high, error = difference(DiscordantPairs(30, 10, 400), 0.95)
    assert gain == pytest.approx(0.05)
    assert low < gain < high
    more = difference(DiscordantPairs(300, 100, 4000), 0.95)
    assert more[2] - more[1] < (high - low) / 3
    assert error > more[3]


def test_the_adjusted_interval_of_bonett_and_price():
    # (12 + 1, 4 + 1) of 62: centre .129, se sqrt((18/62 - .129^2)/62) = .0664.
    _, low, high, _ = difference(DiscordantPairs(12, 4, 60), 0.95)
    assert (low, high) == (pytest.approx(-0.0012, abs=1e-3), pytest.approx(0.2592, abs=1e-3))


def test_counts_only_the_examples_that_one_alone_gets_right():
    target = np.array([1, 1, 0, 0])
    counts = discordant(target, np.array([0.9, 0.9, 0.9, 0.1]), np.array([0.9, 0.1, 0.1, 0.1]))
    assert counts == (1, 1, 4)
