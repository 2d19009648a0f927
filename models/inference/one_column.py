"""Rows of images or of texts, which have one input column.

Pixels come as nested lists, as base64 of their bytes, or as a tensor; a text has any length.
"""

from __future__ import annotations

import base64
import binascii
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import DataError
from models.inference import row_values
from models.inference.input_schema import (
    Columns,
    InputRows,
    InputSchema,
    Schema,
    check_columns,
    check_names,
    column_of,
    refusing,
)
from models.inference.predict import Feed
from models.inference.row_values import shown
from models.inference.tensors import TensorSpec
from models.inputs.image.pictures import FORMATS, levels_of, shape_of

if TYPE_CHECKING:
    import pyarrow as pa

IMAGE, TEXT = "image", "text"


class OneColumnSchema(InputSchema):
    """Rows of images or of texts.

    Args:
        column: The column that holds them; the name of the tensor is accepted as well.
        tensor: The tensor of requests.
        targets: The target columns; they are ignored.
    """

    def __init__(self, column: str, tensor: TensorSpec, targets: Sequence[str]) -> None:
        self.columns, self.numbers, self.inputs = [column], [], [tensor]
        self._targets = targets

    @abstractmethod
    def read(self, values: Sequence[Any], name: str) -> np.ndarray:
        """Return the input of the graph from JSON values; `name` is the column's in messages."""

    @refusing
    def from_columns(self, columns: Columns) -> InputRows:
        """Return rows from columns by name."""
        check_columns(columns)
        (name,) = self.names_in(columns)
        values = self.read(column_of(columns, name), name)
        extra = {column: values for column, values in columns.items() if column not in (name, *self._targets)}
        return InputRows({self.inputs[0].name: values}, extra)

    def from_array(self, values: Any) -> InputRows:
        """Return rows from a list of images or texts."""
        return self.from_columns({self.columns[0]: values})

    def names_in(self, columns: Collection[str]) -> list[str]:
        """Return the name under which `columns` holds the input: the column's, or the tensor's."""
        column, tensor = self.columns[0], self.inputs[0].name
        return [tensor if tensor in columns and column not in columns else column]


class ImageSchema(OneColumnSchema):
    """Takes images as `image`, uint8 (rows, height, width, channel); of any size if `data.image.resize` is set."""

    def __init__(self, preparation: Preparation) -> None:
        self._image = image = preparation.required_pixels.image
        self._resized = None if image.resize is None else shape_of(image.model_dump())
        self._shape = (image.height, image.width, image.channels)
        self._size = image.height * image.width * image.channels
        super().__init__(image.column, TensorSpec(IMAGE, "UINT8", (-1, *self._shape)), preparation.target.columns)

    def read(self, values: Sequence[Any], name: str) -> np.ndarray:
        """Return images from nested lists, or base64 of their bytes, or of files."""
        return np.stack(
            [self._pixels(value, f"row {number}, column {name!r}") for number, value in enumerate(values, 1)]
        )

    def from_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Return rows from the tensor `image`."""
        check_names(tensors, self.inputs)
        values = column_of(tensors, IMAGE)
        if values.shape[1:] not in (self._shape, (self._size,)) or not len(values):
            raise DataError(f"input 'image': got shape {list(values.shape)}, expected [rows, {self._dimensions()}]")
        return InputRows({IMAGE: _levels(values, "input 'image'").reshape(-1, *self._shape)})

    def from_arrow(self, rows: pa.Table, first_row: int = 1, display_name: str = "rows") -> Feed:
        """Return the images of rows, from their bytes."""
        from models.inputs.image.rows import pixels_of

        try:
            positions = np.arange(first_row - 1, first_row - 1 + rows.num_rows)
            return {IMAGE: pixels_of(rows.column(self.columns[0]), self._image, positions)}
        except DataError as error:
            raise DataError(f"{display_name}: {error}") from error

    def item_schema(self) -> Schema | None:
        """Return the JSON Schema of an image: nested lists of pixel values."""
        schema: Schema = {"type": ["integer", "boolean"], "minimum": 0, "maximum": 255}
        if self._resized is not None:
            pixel: Schema = {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1, "maxItems": 4}]}
            row: Schema = {"type": "array", "items": pixel, "minItems": 1}
            return {"type": "array", "items": row, "minItems": 1}
        for size in reversed(self._shape):
            schema = {"type": "array", "items": schema, "minItems": size, "maxItems": size}
        return schema

    def record_schema(self) -> Schema:
        """Return the JSON Schema of an object with the image: base64 of its bytes, or of a file."""
        if self._resized is not None:
            return self._record({"contentMediaType": "image/*", "description": self._expected()})
        length = -(-self._size // 3) * 4
        tail = {0: "", 1: "[A-Za-z0-9+/][AQgw]==", 2: "[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]="}[self._size % 3]
        image = {
            "pattern": f"^[A-Za-z0-9+/]{{{self._size // 3 * 4}}}{tail}$",
            "minLength": length,
            "maxLength": length,
            "description": f"{self._size} bytes: {self._dimensions()} (height, width, channel) of levels 0 to 255.",
        }
        return self._record(image)

    def _record(self, image: Schema) -> Schema:
        described = {"type": "string", "contentEncoding": "base64", **image}
        return {"type": "object", "properties": {self.columns[0]: described}, "required": self.columns}

    def _pixels(self, value: Any, where: str) -> np.ndarray:
        if isinstance(value, str):
            return self._decoded(value, where).reshape(self._shape)
        if not isinstance(value, list):
            raise DataError(f"{where}: got {shown(value)}, expected levels as nested lists, or base64 of their bytes")
        try:
            levels = np.array(value)
        except ValueError:
            levels = np.array("ragged")
        if levels.dtype.kind == "f" and np.isin(levels, np.arange(256)).all():  # JSON's 1.0 is a whole number
            levels = levels.astype(np.uint8)
        if self._resized is not None:
            return self._levels_of(levels, where)
        if levels.dtype.kind not in "iub" or levels.shape not in (self._shape, self._shape[:2], (self._size,)):
            raise DataError(
                f"{where}: got {levels.dtype} of shape {list(levels.shape)}, expected whole numbers from 0 to 255 in "
                f"lists of {self._dimensions()}"
            )
        if levels.shape == self._shape[:2] and self._shape[2] != 1:
            raise DataError(f"{where}: got {levels.shape[0]} x {levels.shape[1]}, expected {self._dimensions()}")
        return _levels(levels, where).reshape(self._shape)

    def _levels_of(self, value: bytes | np.ndarray, where: str) -> np.ndarray:
        assert self._resized is not None
        try:
            return levels_of(value, self._resized)
        except ValueError as error:
            raise DataError(f"{where}: the picture cannot be used, got {error}: send what is expected") from None

    def _expected(self) -> str:
        return f"{self._size} bytes" if self._resized is None else f"a file of {', '.join(FORMATS)} of any size"

    def _decoded(self, text: str, where: str) -> np.ndarray:
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise DataError(f"{where}: got text that is no base64, expected that of {self._expected()}") from None
        if self._resized is not None:
            return self._levels_of(content, where)
        if len(content) != self._size:
            raise DataError(f"{where}: got {len(content)} bytes, expected {self._size} = {self._dimensions()}")
        return np.frombuffer(content, np.uint8)

    def _dimensions(self) -> str:
        return " x ".join(map(str, self._shape))


class TextSchema(OneColumnSchema):
    """Takes texts as `text`, an array of str (rows,); a missing text is empty."""

    def __init__(self, preparation: Preparation) -> None:
        column = preparation.required_characters.column
        super().__init__(column, TensorSpec(TEXT, "BYTES", (-1,)), preparation.target.columns)

    def read(self, values: Sequence[Any], name: str) -> np.ndarray:
        """Return texts (rows,)."""
        return row_values.texts(values, name)

    def from_tensors(self, tensors: Mapping[str, np.ndarray]) -> InputRows:
        """Return rows from the tensor `text`."""
        check_names(tensors, self.inputs)
        values = column_of(tensors, TEXT)
        if values.dtype != object or values.size != len(values) or not len(values):
            raise DataError(f"input 'text': got shape {list(values.shape)}, expected BYTES of shape [rows]")
        return self.from_array(values.ravel().tolist())

    def from_arrow(self, rows: pa.Table, first_row: int = 1, display_name: str = "rows") -> Feed:
        """Return the texts of rows."""
        from models.inference.arrow_columns import texts

        return {TEXT: texts(rows.column(self.columns[0]), self.columns[0], display_name)}

    def item_schema(self) -> Schema | None:
        """Return the JSON Schema of a text."""
        return {"type": ["string", "null"]}

    def record_schema(self) -> Schema:
        """Return the JSON Schema of an object with the text."""
        return {"type": "object", "properties": {self.columns[0]: self.item_schema()}, "required": self.columns}


def _levels(values: np.ndarray, where: str) -> np.ndarray:
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    if values.dtype.kind not in "iub":
        raise DataError(f"{where}: got values that are no whole numbers, expected UINT8: levels from 0 to 255")
    if values.size and (values.min() < 0 or values.max() > 255):
        raise DataError(f"{where}: got levels from {values.min()} to {values.max()}, expected 0 to 255")
    return values.astype(np.uint8)
