"""Arrow rows for a model: they are checked against its schema and converted to the inputs of its graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.columns import is_number, is_text
from models.data.header import no_such_column
from models.data.pixels import pixels_of
from models.data.preparation import CategoricalInput, ImageInput, Preparation, TextInput
from models.errors import DataError
from models.inference import portable
from models.inference.portable import RowError
from models.inference.predict import Feed

SERIES_BATCH = 4096


def input_columns(preparation: Preparation) -> list[str]:
    """Return the columns that a row must have."""
    if preparation.pixels is not None:
        return [preparation.pixels.image.column]
    if preparation.characters is not None:
        return [preparation.characters.column]
    return [*(part.name for part in preparation.numeric), *(part.name for part in preparation.categorical)]


def check_names(names: Sequence[str], preparation: Preparation, display_name: str) -> None:
    """Refuse rows that lack an input column of the model.

    Raises:
        DataError: Names the missing column and the column with the nearest name.
    """
    for name in input_columns(preparation):
        if name not in names:
            raise DataError(f"{display_name}: the model takes {name!r}: {no_such_column(name, list(names))}")


def csv_types(preparation: Preparation, raw: pa.Schema | None, *, is_made: bool = False) -> dict[str, pa.DataType]:
    """Return the column types for CSV files: inputs are text, which `feed_of_rows` reads; others as in the raw table.

    Args:
        preparation: The model's.
        raw: The schema of the project's raw table, if it is known.
        is_made: Whether a feature function reads the rows first: inputs have the types of training then, as those of a
            series, which are put in order first.
    """
    types = {field.name: _plain(field.type) for field in raw or []}
    if not is_made and preparation.kind != "series":
        return types | dict.fromkeys(input_columns(preparation), pa.string())
    dtypes = {"string": pa.string(), "integer": pa.float64(), "boolean": pa.bool_()}
    types.update({part.name: dtypes[part.dtype] for part in preparation.categorical})
    flags = {name for name, kind in types.items() if pa.types.is_boolean(kind)}
    types.update({part.name: pa.float64() for part in preparation.numeric if part.name not in flags})
    return types


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type if text can be parsed as it, else the text type."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    readable = is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    return kind if readable else pa.string()


def feed_of_rows(rows: pa.Table, preparation: Preparation, first_row: int = 1, display_name: str = "rows") -> Feed:
    """Convert rows of a table or of images to inputs of the graph: float64 with NaN, text with "", or uint8 images.

    Args:
        rows: The rows, with every column of `input_columns`.
        preparation: The model's.
        first_row: Number of the first row, for messages.
        display_name: Name of the rows in messages.

    Raises:
        DataError: The model does not accept a value; names row, column, value and cure.
    """
    if preparation.pixels is not None:
        return {"image": _image(rows, preparation.pixels, first_row, display_name)}
    return _columns(rows, preparation, first_row, display_name)


def series_feeds(
    rows: pa.Table, preparation: Preparation, display_name: str = "rows"
) -> Iterator[tuple[np.ndarray, Feed]]:
    """Yield every window of a series: the row (window,) at which it ends, and `series` (window, length, feature).

    Args:
        rows: The steps of one series, oldest first.
        preparation: The model's.
        display_name: Name of the rows in messages.

    Raises:
        DataError: The model does not accept a value, or there are fewer rows than a window has.
    """
    assert preparation.window is not None
    length = preparation.window.length
    values = np.stack(list(_columns(rows, preparation, 1, display_name).values()), axis=1)
    if len(values) < length:
        raise DataError(
            f"{display_name}: {len(values)} rows, expected at least {length}: the model looks at so many steps"
        )
    ends = np.arange(length - 1, len(values))
    steps = np.arange(1 - length, 1)
    for start in range(0, len(ends), SERIES_BATCH):
        chosen = ends[start : start + SERIES_BATCH]
        yield chosen, {"series": values[chosen[:, None] + steps]}


def lines_of(rows: pa.Table, characters: TextInput, display_name: str = "rows") -> list[str]:
    """Return the texts of rows; a missing text is empty.

    Raises:
        DataError: The column holds no text.
    """
    column = rows.column(characters.column)
    if not is_text(column.type) and not pa.types.is_null(column.type):
        raise DataError(f"{display_name}: column {characters.column!r} is {column.type}, expected text: convert it")
    return [text or "" for text in column.to_pylist()]


def _image(rows: pa.Table, pixels: ImageInput, first_row: int, display_name: str) -> np.ndarray:
    try:
        return pixels_of(rows.column(pixels.image.column), pixels.image)
    except DataError as error:
        raise DataError(f"{display_name}, rows from {first_row} (counted from 0): {error}") from error


def _columns(rows: pa.Table, preparation: Preparation, first_row: int, display_name: str) -> Feed:
    try:
        feed = {part.name: _numbers(rows.column(part.name), part.name, first_row) for part in preparation.numeric}
        for part in preparation.categorical:
            feed[part.name] = _categories(rows.column(part.name), part, first_row)
    except RowError as error:
        raise DataError(f"{display_name}, {error}") from error
    return feed


def _numbers(column: pa.ChunkedArray, name: str, first_row: int) -> np.ndarray:
    column = _decoded(column)
    kind = column.type
    if is_text(kind):
        try:
            column = pc.if_else(pc.equal(column, ""), None, column).cast(pa.float64())
        except pa.ArrowInvalid:  # spaces, true and false, NA: cell by cell
            return portable.numbers(portable.number_cells(column.to_pylist()), name, first=first_row)
    elif not (is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise RowError(f"column {name!r} is {kind}, expected numbers: convert it")
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    return portable.in_range(values, name, first=first_row)


def _categories(column: pa.ChunkedArray, part: CategoricalInput, first_row: int) -> np.ndarray:
    column = _decoded(column)
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        column = column.cast(pa.float64())
    elif not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind)):
        try:
            column = column.cast(pa.string())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise RowError(
                f"column {part.name!r} is {kind}, expected text, whole numbers or booleans: convert it"
            ) from error
    if is_text(column.type) and part.dtype == "string":
        values: np.ndarray = pc.fill_null(column, "").to_numpy()
        return values
    unique = pc.unique(column)
    try:
        texts = portable.categories(unique.to_pylist(), part.name, part.dtype)
    except RowError:
        return portable.categories(column.to_pylist(), part.name, part.dtype, first_row)  # names the row
    return np.asarray(texts[pc.index_in(column, unique).to_numpy()])


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
