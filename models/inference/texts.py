"""Rows of texts of any length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import DataError
from models.inference import portable
from models.inference.input_schema import InputRows, OneColumnSchema, Schema, check_names, column_of
from models.inference.predict import Feed
from models.inference.tensors import TensorSpec

if TYPE_CHECKING:
    import pyarrow as pa

INPUT = "text"


class TextSchema(OneColumnSchema):
    """Takes texts as `text`, an array of str (rows,); a missing text is empty."""

    def __init__(self, preparation: Preparation) -> None:
        assert preparation.characters is not None
        super().__init__(preparation.characters.column, TensorSpec(INPUT, "BYTES", (-1,)), preparation.target.name)

    def read(self, values: Sequence[Any], name: str) -> np.ndarray:
        """Return texts (rows,)."""
        return portable.texts(values, name)

    def from_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Return rows from the tensor `text`."""
        check_names(tensors, self.inputs)
        values = column_of(tensors, INPUT)
        if values.dtype != object or values.size != len(values) or not len(values):
            raise DataError(f"input 'text': got shape {list(values.shape)}, expected BYTES of shape [rows]")
        return self.from_array(values.ravel().tolist())

    def from_arrow(self, rows: pa.Table, first_row: int = 0, display_name: str = "rows") -> Feed:
        """Return the texts of rows."""
        from models.inference.arrow_columns import texts

        return {INPUT: texts(rows.column(self.columns[0]), self.columns[0], display_name)}

    def item_schema(self) -> Schema | None:
        """Return the JSON Schema of a text."""
        return {"type": ["string", "null"]}

    def record_schema(self) -> Schema:
        """Return the JSON Schema of an object with the text."""
        return {"type": "object", "properties": {self.columns[0]: self.item_schema()}, "required": self.columns}
