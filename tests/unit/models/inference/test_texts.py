"""Rows of text."""

import numpy as np
import pyarrow as pa
import pytest

from models.errors import DataError
from models.inference.texts import TextSchema
from tests.served_models import preparation_of

SCHEMA = TextSchema(preparation_of("language"))


@pytest.mark.parametrize(
    "rows",
    [
        SCHEMA.from_records([{"line": "ab"}, {"line": None}]),
        SCHEMA.from_columns({"text": ["ab", ""]}),
        SCHEMA.from_array(["ab", None]),
        SCHEMA.from_tensors({"text": np.array(["ab", ""], object)}),
        SCHEMA.from_tensors({"text": np.array([["ab"], [""]], object)}),
    ],
)
def test_every_way_gives_an_array_of_texts(rows) -> None:
    assert rows.feed["text"].tolist() == ["ab", ""]
    assert rows.extra == {}


def test_other_columns_are_kept() -> None:
    assert SCHEMA.from_records([{"line": "ab", "book": "Emma"}]).extra == {"book": ["Emma"]}


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
        SCHEMA.from_array(value)


@pytest.mark.parametrize("values", [np.zeros(1), np.full((1, 2), "a", object), np.zeros(0, object)])
def test_a_tensor_of_something_else_is_refused(values: np.ndarray) -> None:
    with pytest.raises(DataError, match="expected BYTES"):
        SCHEMA.from_tensors({"text": values})


def test_the_schema_has_the_projects_own_column() -> None:
    assert SCHEMA.record_schema()["required"] == ["line"]
    assert SCHEMA.item_schema() == {"type": ["string", "null"]}


def test_a_record_without_text_is_told_with_its_row() -> None:
    with pytest.raises(DataError, match="row 1: the model takes 'line': got 'text'"):
        SCHEMA.from_records([{"line": "ab"}, {"text": "ab"}])


def test_texts_come_from_a_table() -> None:
    assert SCHEMA.from_arrow(pa.table({"line": ["ab", None]}))["text"].tolist() == ["ab", ""]
    with pytest.raises(DataError, match="column 'line' is int64, expected text"):
        SCHEMA.from_arrow(pa.table({"line": [1]}))
