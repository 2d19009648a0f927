"""Numbers as people read them."""

import math

import pytest

from models.readable import readable


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.74621, "0.7462"),
        (14_930.4, "14,930"),
        (1493.26, "1,493"),
        (-1_234_567.8, "−1,234,568"),
        (999.94, "999.9"),
        (0.0, "0"),
        (1.2e-7, "1.2e−07"),
        (3e18, "3e+18"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_shown_as_people_read_them(value, text):
    assert readable(value) == text


def test_a_gain_has_its_sign():
    assert [readable(gain, 3, "+") for gain in (0.01234, -0.5, 14_930.0)] == ["+0.0123", "−0.5", "+14,930"]
