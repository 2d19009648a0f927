"""MLflow's scoring protocol: the request formats of `/invocations`.

Source: MLflow, "Deploy MLflow Model as a Local Inference Server", Accepted Input Formats.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from models.errors import DataError
from models.inference.input_schema import Columns, InputRows, InputSchema, listed, refusing
from models.inference.row_values import columns_by_name, csv_cells, number_cells, shown, with_missing
from models.serving.json_pieces import parsed_in_pieces
from models.serving.predict_request import PredictRequest

FORMATS = ("dataframe_records", "dataframe_split", "instances", "inputs")
_csv_cells, _columns_by_name = refusing(csv_cells), refusing(columns_by_name)
OPTIONAL_KEYS = ("ids", "params", "signature_name")
"""Keys allowed beside a format. `params` and `signature_name` are MLflow's and are ignored here."""
LONGEST_ID = 200
_BODY_CURE = "correct it, or send CSV with `Content-Type: text/csv`"


def scoring_of_json(body: bytes) -> PredictRequest:
    """Parse a JSON body: one of `FORMATS`, a list of records, or one record. NaN is a missing value, like null.

    Raises:
        DataError: The body is none of these; `rows` raises it for values that the model does not accept.
    """
    document = parsed_in_pieces(body, _parsed)
    if isinstance(document, list):
        return PredictRequest(lambda schema: schema.from_records(document), parsed=document)
    if not isinstance(document, dict):
        raise DataError(f"got {shown(document)}, expected an object with one of {', '.join(FORMATS)}, or records")
    formats = [name for name in FORMATS if name in document]
    if not formats:
        return PredictRequest(lambda schema: schema.from_records([document]))
    unexpected = [name for name in document if name not in OPTIONAL_KEYS and name != formats[0]]
    if unexpected:
        raise DataError(
            f"got {listed([formats[0], *unexpected])}, expected one of {', '.join(FORMATS)} and `ids` at most"
        )
    if "params" in document and not isinstance(document["params"], dict | None):
        raise DataError(f"`params`: got {shown(document['params'])}, expected an object")
    value = document[formats[0]]
    parsed = value.get("data") if isinstance(value, dict) else value
    ids = checked_ids(document.get("ids"))
    return PredictRequest(_READ[formats[0]](value), ids=ids, parsed=parsed if isinstance(parsed, list) else [])


def scoring_of_csv(body: bytes) -> PredictRequest:
    """Parse a CSV body with a header: numeric columns are read as numbers, cells in `MISSING` as missing values.

    Raises:
        DataError: The body is no such CSV in UTF-8; `rows` raises it for values that the model does not accept.
    """
    cells = _csv_cells(body)
    return PredictRequest(lambda schema: schema.from_columns(columns_of_cells(cells, schema, schema.na_is_text)))


def checked_ids(ids: Any) -> list[str] | None:
    """Return the caller's ids of the rows; None if there are none.

    Raises:
        DataError: They are no list of unique texts.
    """
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(
        isinstance(row_id, str) and 0 < len(row_id) <= LONGEST_ID for row_id in ids
    ):
        raise DataError(f"`ids`: got {shown(ids)}, expected a list of texts of 1 to {LONGEST_ID} characters, one a row")
    if len(set(ids)) != len(ids):
        raise DataError("`ids`: one is there twice: each row needs its own")
    return ids


def _parsed(body: bytes) -> Any:
    """Parse JSON, including the `NaN` that MLflow's own client sends for missing values."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in body:
            raise DataError(f"the body is not JSON ({error}): {_BODY_CURE}") from None
    try:
        # Serialised and parsed again: only orjson refuses lone surrogates and too deep nesting.
        return orjson.loads(
            orjson.dumps(json.loads(body, parse_constant=_missing, parse_float=_finite, parse_int=_whole))
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"the body is not JSON ({str(error)[:200]}): {_BODY_CURE}") from None


def _missing(word: str) -> None:
    if word != "NaN":
        raise ValueError(f"{word} is no number")


def _whole(digits: str) -> int | float:
    """Return a number as orjson does: one that no 64 bits hold is a float."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else _finite(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is more than float64 holds")
    return value


def _records(value: Any) -> Callable[[InputSchema], InputRows]:
    return lambda schema: schema.from_records(value)


def _split(value: Any) -> Callable[[InputSchema], InputRows]:
    if not isinstance(value, dict) or not {"columns", "data"} <= set(value) <= {"columns", "data", "index"}:
        raise DataError(f"`dataframe_split`: got {shown(value)}, expected an object with `columns` and `data`")
    columns = _columns_by_name(value["columns"], value["data"], "`dataframe_split`")
    return lambda schema: schema.from_columns(columns)


def _instances(value: Any) -> Callable[[InputSchema], InputRows]:
    if isinstance(value, dict):
        raise DataError("`instances`: got an object, expected a list of rows; columns by name go into `inputs`")
    if isinstance(value, list) and any(isinstance(instance, dict) for instance in value):
        return lambda schema: schema.from_records(value)
    return lambda schema: schema.from_array(value)


def _inputs(value: Any) -> Callable[[InputSchema], InputRows]:
    return (lambda schema: schema.from_columns(value)) if isinstance(value, dict) else _instances(value)


_READ: dict[str, Callable[[Any], Callable[[InputSchema], InputRows]]] = {
    "dataframe_records": _records,
    "dataframe_split": _split,
    "instances": _instances,
    "inputs": _inputs,
}


def columns_of_cells(written: Mapping[str, Sequence[str]], schema: InputSchema, na_is_text: Sequence[str]) -> Columns:
    """Return columns of values from those of texts, as the cells of a CSV are read; in some columns NA is a text."""
    columns = with_missing(written, na_is_text)
    numbers = {*schema.numbers} - {*schema.forms}
    return {name: number_cells(cells) if name in numbers else cells for name, cells in columns.items()}
