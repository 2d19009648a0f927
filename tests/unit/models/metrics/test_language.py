import bz2
import math

import numpy as np
import pytest

from models.metrics.language import bz2_bits_per_char, unigram_bits
from models.metrics.metrics import METRICS


def test_bits_are_the_mean_over_windows():
    metric, bits = METRICS["bits_per_char"], np.array([[1.0, 3.0], [4.0, 4.0]])
    assert metric.value(bits, bits) == 3.0
    assert metric.value(bits, bits, np.array([3.0, 1.0])) == 2.5
    assert math.isnan(metric.value(bits[:0], bits[:0]))


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
