"""MLflow's scoring protocol: what a caller may send to `/invocations`.

Source: MLflow, "Deploy MLflow Model as a Local Inference Server", Accepted Input Formats.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from models.errors import DataError
from models.inference.rows import InputRows, RowReader, listed, shown

FORMATS = ("dataframe_records", "dataframe_split", "instances", "inputs")
OPTIONAL_KEYS = ("ids", "params", "signature_name")
"""What may stand beside a format. `params` and `signature_name` are MLflow's and mean nothing here."""
LONGEST_ID = 200
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "n/a", "nan", "null",
)  # fmt: skip
"""Cells of a CSV that are missing values, quoted or not: those of Arrow, which reads the training data."""
_MISSING = frozenset(MISSING)
_FLAGS = {"true": True, "false": False}


@dataclass(slots=True)
class ScoringRequest:
    """Rows to score. `rows` makes them for the version that answers; `ids`: the caller's names of them."""

    rows: Callable[[RowReader], InputRows]
    ids: list[str] | None = None


def scoring_of_json(body: bytes) -> ScoringRequest:
    """A body of JSON: one of `FORMATS`, a list of records, or one record. NaN is a missing value, as null is.

    Raises:
        DataError: It is none of these; `rows` raises it for what the model cannot take.
    """
    document = _parsed(body)
    if isinstance(document, list):
        return ScoringRequest(lambda reader: reader.of_records(document))
    if not isinstance(document, dict):
        raise DataError(f"got {shown(document)}, expected an object with one of {', '.join(FORMATS)}, or records")
    formats = [name for name in FORMATS if name in document]
    if not formats:
        return ScoringRequest(lambda reader: reader.of_records([document]))
    others = [name for name in document if name not in OPTIONAL_KEYS and name != formats[0]]
    if others:
        raise DataError(f"got {listed([formats[0], *others])}, expected one of {', '.join(FORMATS)} and `ids` at most")
    if not isinstance(document.get("params"), dict | None):
        raise DataError(f"`params`: got {shown(document['params'])}, expected an object")
    value = document[formats[0]]
    return ScoringRequest(_READ[formats[0]](value), checked_ids(document.get("ids")))


def scoring_of_csv(body: bytes) -> ScoringRequest:
    """A body of CSV with a header: cells of columns that hold numbers are read as such, those of `MISSING` are none.

    Raises:
        DataError: The body is not CSV in UTF-8; `rows` raises it for rows that the model cannot take.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError("the CSV is no UTF-8: convert it") from None
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        names, *cells = [line for line in lines if line]
    except csv.Error as error:
        raise DataError(f"CSV, line {lines.line_num}: {error}") from None
    except ValueError:
        raise DataError("got no CSV, expected a line of column names and rows under it") from None
    columns = _by_name(names, cells, "CSV")
    return ScoringRequest(
        lambda reader: reader.of_columns({name: _cells(name, columns[name], reader) for name in names})
    )


def checked_ids(ids: Any) -> list[str] | None:
    """The caller's names of the rows; None for none.

    Raises:
        DataError: The ids are not a list of texts without repetition.
    """
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(isinstance(one, str) and 0 < len(one) <= LONGEST_ID for one in ids):
        raise DataError(f"`ids`: expected a list of texts of 1 to {LONGEST_ID} characters, one a row")
    if len(set(ids)) != len(ids):
        raise DataError("`ids`: one stands there twice: each row needs its own")
    return ids


def _parsed(body: bytes) -> Any:
    """JSON, and the `NaN` that MLflow's own client sends for what is missing."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in body:
            raise DataError(f"the body is not JSON: {error}") from None
    try:
        # Written and read again: orjson alone refuses halves of characters, and what is nested too deep.
        return orjson.loads(orjson.dumps(json.loads(body, parse_constant=_missing, parse_float=_finite)))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"the body is not JSON: {str(error)[:200]}") from None


def _missing(word: str) -> None:
    if word != "NaN":
        raise ValueError(f"{word} is no number")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is more than float64 holds")
    return value


def _records(value: Any) -> Callable[[RowReader], InputRows]:
    return lambda reader: reader.of_records(value)


def _split(value: Any) -> Callable[[RowReader], InputRows]:
    if not isinstance(value, dict) or not {"columns", "data"} <= set(value) <= {"columns", "data", "index"}:
        raise DataError("`dataframe_split`: expected an object with `columns` and `data`")
    columns = _by_name(value["columns"], value["data"], "`dataframe_split`")
    return lambda reader: reader.of_columns(columns)


def _instances(value: Any) -> Callable[[RowReader], InputRows]:
    if isinstance(value, dict):
        raise DataError("`instances`: got an object, expected a list of rows; columns by name go into `inputs`")
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return lambda reader: reader.of_records(value)
    return lambda reader: reader.of_array(value)


def _inputs(value: Any) -> Callable[[RowReader], InputRows]:
    return (lambda reader: reader.of_columns(value)) if isinstance(value, dict) else _instances(value)


_READ: dict[str, Callable[[Any], Callable[[RowReader], InputRows]]] = {
    "dataframe_records": _records,
    "dataframe_split": _split,
    "instances": _instances,
    "inputs": _inputs,
}


def _by_name(names: Any, rows: Any, where: str) -> dict[str, list[Any]]:
    """Columns by name from rows as lists."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{where}: expected the columns as a list of names")
    if len(set(names)) != len(names):
        raise DataError(f"{where}: a column stands there twice: {listed(names)}")
    if not isinstance(rows, list) or not rows:
        raise DataError(f"{where}: got no rows, expected one or more, each a list of values")
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise DataError(f"{where}, row {at}: got {shown(row)}, expected a list of {len(names)}: a value a column")
    return {name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def _cells(name: str, cells: list[str], reader: RowReader) -> list[Any]:
    """Cells of a column as the training data had them."""
    present = [None if cell in _MISSING else cell for cell in cells]
    if name not in reader.numbers:
        return present
    return [None if cell is None else _number(cell.strip()) for cell in present]


def _number(cell: str) -> float | bool | str | None:
    """A number if it can be read, else the text, which the reader refuses with its position."""
    if not cell:
        return None
    flag = _FLAGS.get(cell.lower())
    if flag is not None:
        return flag
    try:
        return cell if "_" in cell else float(cell)
    except ValueError:
        return cell
