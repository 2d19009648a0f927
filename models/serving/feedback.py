"""Labels in feedback requests, checked at once against the model's target.

The rules are those that `models.validation.labels` has for files; nothing here needs Arrow.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import DataError, did_you_mean
from models.feedback.columns import LABEL
from models.feedback.label_text import forms_of_labels, label_text
from models.inference.input_schema import refusing
from models.inference.row_values import csv_columns, number_text, shown, written_values
from models.kinds.task import PerTask
from models.serving.mlflow_scoring import LONGEST_ID

ID = "id"
LONGEST_BY = 100
"""Most characters of the name of the person or system that gives labels."""
_SHOWN = 20
_csv_columns = refusing(csv_columns)
_BOOLEANS = {"true": "true", "1": "true", "yes": "true", "false": "false", "0": "false", "no": "false"}


@dataclass(frozen=True)
class LabelBatch:
    """Valid labels: `(id, label)` each, every id once. `empty`: number of rows without a label."""

    pairs: list[tuple[str, str]]
    empty: int


def rows_of_csv(body: bytes, na_is_text: Sequence[str] = ()) -> list[dict[str, str | None]]:
    """Return the rows of a CSV with a header; None for missing cells, which `na_is_text` says of some columns.

    Raises:
        DataError: The body is no CSV.
    """
    columns = _csv_columns(body, na_is_text)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def checked(rows: Sequence[Any], preparation: Preparation) -> LabelBatch:
    """Return the labels if all of them are valid.

    Args:
        rows: Objects with `id`, and `label` or a key with the target's name, or of each of several targets; further
            keys are ignored.
        preparation: The version's; its target defines the valid labels.

    Raises:
        DataError: A label is no class or number, an id is missing or has two labels, or there are none; names the row.
    """
    if preparation.characters is not None:
        raise DataError("a model of text has no labels: more text at the source is what it learns from")
    if not rows:
        raise DataError(f"got no labels, expected one or more: an object with {ID!r} and {LABEL!r} each")
    target = preparation.target
    labels: dict[str, tuple[str, int]] = {}
    empty, forms = 0, forms_of_labels(target.columns, preparation.forms)
    for number, sent in enumerate(rows, 1):
        row = _written(sent, forms, number) if forms and isinstance(sent, Mapping) else sent
        several = len(target.columns) > 1
        value = _values(row, preparation, number) if several else _value(row, target, number)
        if _is_missing(value):
            empty += 1
            continue
        row_id, label = _id(row, number), str(value) if several else _label(value, preparation, number)
        before, earlier = labels.setdefault(row_id, (label, number))
        if before != label:
            raise DataError(
                f"row {number}: id {row_id!r} has label {label!r} here and {before!r} in row {earlier}: keep one"
            )
    return LabelBatch([(row_id, label) for row_id, (label, _) in labels.items()], empty)


@refusing
def _written(row: Mapping[str, Any], forms: Mapping[str, str], number: int) -> dict[str, Any]:
    """Return a row with the numbers that its texts say."""
    return {
        name: written_values([value], name, forms[name], number)[0] if name in forms else value
        for name, value in row.items()
    }


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _values(row: Any, preparation: Preparation, number: int) -> str | None:
    """Return the text of the labels of several targets; None if there is none.

    They are keys of the row, or of an object under `label`; of a multilabel task `label` may be the list of labels.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"row {number}: got {shown(row)}, expected an object with {ID!r} and the targets")
    columns, form = preparation.target.columns, LABEL_FORMS[preparation.task]
    label = form.by_name(row.get(LABEL), columns, number)
    values = label if isinstance(label, Mapping) else row
    labelled = [name for name in columns if not _is_missing(values.get(name))]
    if not labelled and any(name in values for name in (LABEL, *columns)) and _is_missing(label):
        return None
    if len(labelled) < len(columns):
        lacks = next(name for name in columns if name not in labelled)
        raise DataError(f"row {number}: no label of {lacks!r}, expected one of each of {', '.join(columns[:_SHOWN])}")
    numbers = {name: _output(values[name], name, form, number) for name in columns}
    return label_text(numbers, columns)


def _output(value: Any, name: str, form: LabelForm, number: int) -> float:
    result = form.number(value)
    if not math.isfinite(result):
        raise DataError(f"row {number}: got label {shown(value)} of {name!r}, expected {form.expected}: correct it")
    return result


def _unchanged(label: Any, columns: Sequence[str], number: int) -> Any:
    del columns, number
    return label


def _flags_by_name(flags: Any, columns: Sequence[str], number: int) -> Any:
    """Return a list of labels as 0 or 1 by the name of each; any other value as it is."""
    if not isinstance(flags, list):
        return flags
    strange = [name for name in flags if name not in columns]
    if strange:
        cure = did_you_mean(str(strange[0]), columns, f"expected some of {', '.join(columns[:_SHOWN])}")
        raise DataError(f"row {number}: got label {shown(strange[0])}, which is none of the model: {cure}")
    return {name: int(name in flags) for name in columns}


def _number_or_nan(value: Any) -> float:
    """Return a value as a number; NaN if it is none."""
    try:
        return float("nan") if isinstance(value, bool) else float(value)
    except (ValueError, TypeError, OverflowError):
        return float("nan")


def _flag(value: Any) -> float:
    """Return 0 or 1; NaN for other values."""
    if isinstance(value, (bool, str)):
        value = {"true": 1, "false": 0}.get(_BOOLEANS.get(str(value).lower(), ""), value)
    number = _number_or_nan(value)
    return number if number in (0, 1) else float("nan")


def _value(row: Any, target: TargetEncoding, number: int) -> Any:
    if not isinstance(row, Mapping):
        raise DataError(f"row {number}: got {shown(row)}, expected an object with {ID!r} and {LABEL!r}")
    for name in (target.columns[0], LABEL):
        if name in row:
            return row[name]
    near = difflib.get_close_matches(LABEL, list(row), 1)
    hint = f"did you mean it by {near[0]!r}?" if near else f"got {', '.join(map(repr, row)) or 'none'}"
    raise DataError(f"row {number}: expected a key {target.name!r} or {LABEL!r}: {hint}")


def _id(row: Mapping[str, Any], number: int) -> str:
    value = row.get(ID)
    if value is None or value == "":
        raise DataError(f"row {number}, {ID!r}: no id: say which prediction the label is of")
    if isinstance(value, bool) or not isinstance(value, (str, int)) or len(str(value)) > LONGEST_ID:
        raise DataError(f"row {number}, {ID!r}: got {shown(value)}, expected the id of a prediction, as text")
    return str(value)


def _label(value: Any, preparation: Preparation, number: int) -> str:
    target = preparation.target
    if not isinstance(value, (str, int, float)):
        raise DataError(f"row {number}: got label {shown(value)} of {target.name!r}, expected text or a number")
    return LABEL_FORMS[preparation.task].text(value, target, number)


def _number(value: str | float, target: TargetEncoding, number: int) -> str:
    try:
        result = float("nan") if isinstance(value, bool) else float(value)
    except (ValueError, OverflowError):
        result = float("nan")
    if not math.isfinite(result):
        raise DataError(f"row {number}: got label {shown(value)} of {target.name!r}, expected a number: correct it")
    return repr(result)


def _class(value: str | float, target: TargetEncoding, number: int) -> str:
    text, classes = _as_written(value, target), target.names
    if text in classes:
        return text
    cure = did_you_mean(text, classes, "correct it; a new class comes by rows at the source")
    raise DataError(
        f"row {number}: got label {shown(text)} of {target.name!r}, expected one of "
        f"{', '.join(classes[:_SHOWN])}: {cure}"
    )


def _as_written(value: str | float, target: TargetEncoding) -> str:
    """Return a value in the text form of the classes, by the target's type: `True` is `true`, `5.0` is `5`."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float):
        text = number_text(value)
    else:
        text = str(value)
    if target.dtype == "boolean":
        return _BOOLEANS.get(text.lower(), text)
    if target.dtype == "integer" and isinstance(value, str):
        try:
            return number_text(float(text))
        except ValueError:
            return text
    return text


class LabelForm(NamedTuple):
    """How the labels of a task are written.

    Attributes:
        text: Returns the text of the label of one target, or raises `DataError`.
        by_name: Returns the labels of several targets by their names, from the value under `label`.
        number: Returns the label of one of several targets; NaN if it is none.
        expected: What such a label is, in words.
    """

    text: Callable[[str | float, TargetEncoding, int], str]
    by_name: Callable[[Any, Sequence[str], int], Any]
    number: Callable[[Any], float]
    expected: str


_CLASSES = LabelForm(_class, _unchanged, _number_or_nan, "a number")
_NUMBERS = LabelForm(_number, _unchanged, _number_or_nan, "a number")
LABEL_FORMS: PerTask[LabelForm] = {
    "binary": _CLASSES,
    "multiclass": _CLASSES,
    "multilabel": LabelForm(_number, _flags_by_name, _flag, "0 or 1"),
    "regression": _NUMBERS,
    "quantile": _NUMBERS,
    "language": _NUMBERS,
    "ranking": _NUMBERS,
}
