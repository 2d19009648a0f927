"""Rows of text."""

import numpy as np
import pytest

from models.errors import DataError
from models.inference.texts import TextReader

READER = TextReader("line")


@pytest.mark.parametrize(
    "rows",
    [
        READER.of_records([{"line": "ab"}, {"line": None}]),
        READER.of_columns({"text": ["ab", ""]}),
        READER.of_array(["ab", None]),
        READER.of_tensors({"text": np.array(["ab", ""], object)}),
        READER.of_tensors({"text": np.array([["ab"], [""]], object)}),
    ],
)
def test_every_way_gives_an_array_of_texts(rows) -> None:
    assert rows.feed["text"].tolist() == ["ab", ""]
    assert rows.extra == {}


def test_other_columns_are_kept() -> None:
    assert READER.of_records([{"line": "ab", "book": "Emma"}]).extra == {"book": ["Emma"]}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([5], "row 0, column 'line': got 5"),
        ([["a"]], "row 0, column 'line': got a list"),
        ([], "no rows"),
        ("ab", "expected a list"),
    ],
)
def test_what_is_no_text_is_refused(value: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        READER.of_array(value)


@pytest.mark.parametrize("values", [np.zeros(1), np.full((1, 2), "a", object), np.zeros(0, object)])
def test_a_tensor_of_something_else_is_refused(values: np.ndarray) -> None:
    with pytest.raises(DataError, match="expected BYTES"):
        READER.of_tensors({"text": values})


def test_the_schema_has_the_projects_own_column() -> None:
    assert READER.record_schema()["required"] == ["line"]
    assert READER.item_schema() == {"type": ["string", "null"]}


def test_a_record_without_text_is_told_with_its_row() -> None:
    with pytest.raises(DataError, match="row 1: the model takes 'line': got 'text'"):
        READER.of_records([{"line": "ab"}, {"text": "ab"}])
