import bz2
import math

import numpy as np
import pytest

from models.metrics.language import bits_per_char, bz2_bits_per_char, unigram_bits, window_bits
from models.metrics.metrics import METRICS
from models.metrics.resampling import evaluator


def test_bits_are_the_mean_over_windows():
    bits = np.array([[1.0, 3.0], [4.0, 4.0]])
    assert bits_per_char(None, bits) == 3.0
    assert bits_per_char(None, bits, np.array([3.0, 1.0])) == 2.5
    assert window_bits(bits).tolist() == [2.0, 4.0]
    assert math.isnan(bits_per_char(None, np.zeros((0, 2))))


def test_resampling_takes_the_same_value():
    bits = np.random.default_rng(0).gamma(2, 1, (50, 8))
    weight = np.random.default_rng(1).integers(0, 3, 50).astype(float)
    taken = evaluator(METRICS["bits_per_char"], np.zeros((50, 8)), bits)(weight)
    assert taken == pytest.approx(bits_per_char(None, bits, weight), rel=1e-12)


def test_a_unigram_costs_what_its_shares_say():
    training = np.array([97] * 6 + [98] * 2)
    bits = unigram_bits(training, np.array([[97, 98], [120, 97]]))
    assert bits == pytest.approx(-np.log2(np.array([[7, 3], [1, 7]]) / 11))
    assert 2.0 ** -bits[0, 0] + 2.0 ** -bits[0, 1] + 2.0 ** -bits[1, 0] == pytest.approx(1.0)


def test_bzip2_is_given_the_training_text():
    words = np.random.default_rng(0).choice(["sense", "sensibility", "pride", "prejudice"], 4000)
    training, text = " ".join(words[:3000]), " ".join(words[3000:])
    alone = 8 * len(bz2.compress(text.encode(), 9)) / len(text)
    assert 0.2 < bz2_bits_per_char(training, text) < alone


def test_bzip2_reads_no_more_than_shares_a_block_with_the_text():
    words = np.random.default_rng(0).choice(["sense", "sensibility", "pride", "prejudice"], 150_000)
    training, text = " ".join(words[1000:]), " ".join(words[:1000])
    assert len(training) > 900_000
    assert bz2_bits_per_char("far away " * 999 + training, text) == bz2_bits_per_char(training, text)
    assert bz2_bits_per_char("", text) == 8 * len(bz2.compress(text.encode(), 9)) / len(text)
