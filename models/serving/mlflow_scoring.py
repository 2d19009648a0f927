"""MLflow's scoring protocol: the request formats of `/invocations`.

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
"""Keys allowed beside a format. `params` and `signature_name` are MLflow's and are ignored here."""
LONGEST_ID = 200
MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "n/a", "nan", "null",
)  # fmt: skip
"""CSV cells that are missing values, quoted or not: the same as in Arrow, which reads the training data."""
_MISSING = frozenset(MISSING)
_FLAGS = {"true": True, "false": False}


@dataclass(slots=True)
class ScoringRequest:
    """Rows to score. `rows` converts them for the version that predicts; `ids`: the caller's ids of the rows."""

    rows: Callable[[RowReader], InputRows]
    ids: list[str] | None = None


def scoring_of_json(body: bytes) -> ScoringRequest:
    """Parse a JSON body: one of `FORMATS`, a list of records, or one record. NaN is a missing value, like null.

    Raises:
        DataError: The body is none of these; `rows` raises it for values that the model does not accept.
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
    """Parse a CSV body with a header: numeric columns are read as numbers, cells in `MISSING` as missing values.

    Raises:
        DataError: The body is no such CSV in UTF-8; `rows` raises it for values that the model does not accept.
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
    """Return the caller's ids of the rows; None if there are none.

    Raises:
        DataError: They are no list of unique texts.
    """
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(isinstance(one, str) and 0 < len(one) <= LONGEST_ID for one in ids):
        raise DataError(f"`ids`: expected a list of texts of 1 to {LONGEST_ID} characters, one a row")
    if len(set(ids)) != len(ids):
        raise DataError("`ids`: one stands there twice: each row needs its own")
    return ids


def _parsed(body: bytes) -> Any:
    """Parse JSON, including the `NaN` that MLflow's own client sends for missing values."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in body:
            raise DataError(f"the body is not JSON: {error}") from None
    try:
        # Serialised and parsed again: only orjson refuses lone surrogates and too deep nesting.
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
    """Return columns by name from rows as lists."""
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
    """Return the cells of a column in the form of the training data."""
    present = [None if cell in _MISSING else cell for cell in cells]
    if name not in reader.numbers:
        return present
    return [None if cell is None else _number(cell.strip()) for cell in present]


def _number(cell: str) -> float | bool | str | None:
    """Return a cell as a number or boolean; other text stays text, and the reader then refuses it by its position."""
    if not cell:
        return None
    flag = _FLAGS.get(cell.lower())
    if flag is not None:
        return flag
    try:
        return cell if "_" in cell else float(cell)
    except ValueError:
        return cell
