"""How values are written on pages, and that no address on them can run code."""

import base64
import re
import xml.etree.ElementTree as ET

import pytest

from models.report.pages import DARK, ago, data_uri, interval, safe_link, show
from models.report.style import draw, look


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        ("", "–"),
        (True, "yes"),
        (336_776, "336\u202f776"),
        (-12, "−12"),
        (0.0, "0"),
        (0.745921, "0.7459"),
        (-3e-7, "−3e−07"),
        (12345.678, "12\u202f346"),
        ([1, 2.5, "x"], "1, 2.5, x"),
        ([], "–"),
        ({"min": -12, "max": 4.5}, "min: −12, max: 4.5"),
        ("<b>", "<b>"),
        (" ", "' '"),
        ("\n", r"'\n'"),
    ],
)
def test_values_as_people_write_them(value, text):
    assert show(value) == text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (-40, "40 s ago"),
        (-100, "2 min ago"),
        (-7200, "2 h ago"),
        (-40 * 3600, "2 d ago"),
        (300, "in 5 min"),
    ],
)
def test_times_are_told_from_now(seconds: float, words: str) -> None:
    assert ago(1e9 + seconds, 1e9) == words


def test_intervals():
    assert interval(0.5, 0.75) == "0.5 to 0.75"
    assert interval(None, 1.0) == "–"


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "data:text/html,x", " https://x", "JAVASCRIPT:x", "//x", "/\\x"]
)
def test_an_address_that_could_run_code_leads_nowhere(address):
    assert safe_link(address) == "#"


@pytest.mark.parametrize("address", ["/", "/projects/a/pages/card", "https://x", "#part"])
def test_an_address_of_ours_is_left_as_it_is(address):
    assert safe_link(address) == address


def test_pictures_are_told_apart_by_content():
    assert data_uri(b"\x89PNG\r\n").startswith("data:image/png;base64,")
    assert data_uri(b"<svg/>").startswith("data:image/svg+xml;base64,")


@pytest.mark.usefixtures("pictures")
def test_figures_are_dark_in_the_dark_but_maps_of_colours_are_not():
    figure = draw(lambda figure: figure.subplots().plot([0, 1], **look("challenger", 0)))
    colour_map = draw(lambda figure: figure.subplots().imshow([[0, 1]]))
    texts = [base64.b64decode(data_uri(image).partition(",")[2]).decode() for image in (figure, colour_map)]
    assert ["prefers-color-scheme:dark" in text for text in texts] == [True, False]
    drawn = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", texts[0]))
    assert {*DARK} >= drawn > {"#ffffff"}, "a colour without its dark one"
    assert ET.fromstring(texts[0]).tag.endswith("svg")
