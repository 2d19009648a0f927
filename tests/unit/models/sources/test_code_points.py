"""Text as numbers."""

from hypothesis import given
from hypothesis import strategies as st

from models.sources.code_points import code_points


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_character_is_one_number_that_reads_back(text: str) -> None:
    points = code_points(text)
    assert points.dtype == "int64"
    assert "".join(map(chr, points)) == text
