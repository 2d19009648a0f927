"""Request rows of texts of any length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.errors import DataError
from models.inference import portable
from models.inference.rows import (
    Columns,
    InputRows,
    Schema,
    check_columns,
    check_complete,
    check_names,
    column_of,
    columns_of_records,
    named,
    refusing,
)
from models.inference.tensor_specs import TensorSpec

INPUT = "text"


class TextReader:
    """Reads texts into `text`, an array of str (rows,); a missing text is empty.

    Args:
        column: The project's text column; the name `text` is accepted as well.
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self.numbers: list[str] = []
        self.inputs = [TensorSpec(INPUT, "BYTES", (-1,))]

    def of_records(self, records: Sequence[Any]) -> InputRows:
        """Return rows from objects with the text's column."""
        columns = columns_of_records(records)
        check_complete(records, [named(columns, self._column, INPUT)])
        return self.of_columns(columns)

    @refusing
    def of_columns(self, columns: Columns) -> InputRows:
        """Return rows from columns by name."""
        check_columns(columns)
        name = named(columns, self._column, INPUT)
        texts = portable.texts(column_of(columns, name), name)
        return InputRows({INPUT: texts}, {other: columns[other] for other in columns if other != name})

    def of_array(self, values: Any) -> InputRows:
        """Return rows from a list of texts."""
        return self.of_columns({self._column: values})

    def of_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Return rows from the tensor `text`."""
        check_names(tensors, self.inputs)
        values = column_of(tensors, INPUT)
        if values.dtype != object or values.size != len(values) or not len(values):
            raise DataError(f"input 'text': got shape {list(values.shape)}, expected BYTES of shape [rows]")
        return self.of_array(values.ravel().tolist())

    def item_schema(self) -> Schema | None:
        """Return the JSON Schema of a text."""
        return {"type": ["string", "null"]}

    def record_schema(self) -> Schema:
        """Return the JSON Schema of an object with the text."""
        return {
            "type": "object",
            "properties": {self._column: {"type": ["string", "null"]}},
            "required": [self._column],
        }
