"""Pictures are drawn the same way every time and leave matplotlib as they found it."""

import matplotlib as mpl
import pytest

from models.report.style import DASHES, MODEL_LOOKS, PALETTE, draw, look, shorten

pytestmark = pytest.mark.usefixtures("pictures")


def paint(figure):
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1])
    axes.set_xlabel("price in $ per $ <b>")


def test_the_same_picture_gives_the_same_bytes_and_text_stays_text():
    first = draw(paint)
    assert first == draw(paint)
    assert b"price in $ per $ &lt;b&gt;" in first


def test_matplotlibs_own_settings_are_untouched():
    before = dict(mpl.rcParams)
    draw(paint)
    assert dict(mpl.rcParams) == before


def test_every_line_of_a_many_line_picture_looks_different():
    looks = {tuple(look(f"class {place}", place).items()) for place in range(2 * len(PALETTE))}
    assert len(looks) == 2 * len(PALETTE)
    assert look("champion", 5) == MODEL_LOOKS["champion"]
    assert DASHES[0] == "-"


def test_long_or_unprintable_labels_are_made_to_fit():
    assert shorten("short") == "short"
    assert shorten("a\x00b\nc") == "a b c"
    long = shorten("a" * 50 + "ending", 20)
    assert len(long) == 20
    assert long.endswith("ending")
