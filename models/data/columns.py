"""The choice of a model's input columns and their kinds, and the text form of categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from models.errors import DataError
from models.inputs.raw_rows import Columns
from models.inputs.records import check_kinds
from models.inputs.rows import ROWS
from models.inputs.types import all_missing, as_text, is_number
from models.project_spec.blocks import Data
from models.project_spec.reserved_columns import SLICE_PREFIX


def choose(schema: pa.Schema, data: Data) -> Columns:
    """Divide the columns of a table into inputs and the rest, by the spec and by type alone.

    The order is that of `features.columns`, else of the table. Numbers are numeric; text and booleans are
    categorical (`prepare` makes texts of those that hold sentences); dates and timestamps are datetimes. The split's
    own column is left out unless `features.columns` or `features.kinds` names it. For a series the past of the target
    is an input.

    Raises:
        DataError: The spec names a column that no net can take, or no input column is left.
        UsageError: The spec names a kind that does not exist.
    """
    if data.image is not None:
        return Columns({data.image.column: "image"})
    check_kinds(data.features.kinds)
    columns = Columns()
    types = {field.name: field.type for field in schema}
    names = [name for name in data.features.columns or () if name in types]
    for name in dict.fromkeys([*names, *types]):  # a user's own net relies on the order in the spec
        reason = _reason_to_leave_out(name, types[name], data)
        if reason:
            columns.left_out[name] = reason
        elif name not in data.needed_targets:
            columns.kinds[name] = _kind(name, types[name], data)
    if not columns.inputs:
        raise no_input_column(columns.left_out)
    return columns


def no_input_column(left_out: Mapping[str, str]) -> DataError:
    """Return the error of a table without an input; `left_out`: the columns that are none, and why."""
    if not left_out:
        return DataError("data.features leaves no input column: the data has the target alone; add columns to it")
    reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
    return DataError(f"data.features leaves no input column ({reasons}): name some in data.features.columns")


def with_slices(rows: pa.Table, source: pa.Table, names: Sequence[str]) -> pa.Table:
    """Add the slice columns that are no inputs to the prepared rows, as texts and under reserved names.

    Args:
        rows: The prepared rows.
        source: The same rows with all of their columns, including made ones.
        names: The spec's `judge.slices`.

    Raises:
        DataError: A slice column cannot be converted to text.
    """
    for name in dict.fromkeys(names):
        if name in rows.column_names:
            continue
        try:
            texts = as_text(source.column(name))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"judge.slices: column {name!r} is of type {source.column(name).type}, expected text, numbers, "
                "booleans or dates: make a text of it with data.features.make, or name another column"
            ) from error
        rows = rows.append_column(SLICE_PREFIX + name, texts.dictionary_encode())
    return rows


def _reason_to_leave_out(name: str, kind: pa.DataType, data: Data) -> str | None:
    features = data.features
    if name in features.drop:
        return "dropped by the spec"
    is_named = name in (features.columns or []) or name in features.kinds
    if features.columns is not None and name not in features.columns and name not in data.past_targets:
        return "not in data.features.columns"
    if name in data.targets:
        return None
    if name == data.weight or (name == data.id and not is_named):
        return "it weighs the row (data.weight)" if name == data.weight else "it names the row (data.id)"
    if name in data.series_keys:
        if is_named:
            raise DataError(
                f"data.features: column {name!r} is named, but it names the series (data.window.series_key), which is "
                "never an input: give facts of a series in columns of their own"
            )
        return "it names the series (data.window.series_key)"
    if name == data.split.column and not is_named:
        return f"it is what the split is by ({data.split.by})"
    if pa.types.is_null(kind):
        raise DataError(all_missing(name))
    unfit = _unfit(kind, data) or _misfit(name, kind, data)
    if unfit and is_named:
        raise DataError(
            f"data.features: column {name!r} is named, but {unfit}: take it out of data.features, or convert it in the "
            "source"
        )
    return unfit


def _unfit(kind: pa.DataType, data: Data) -> str | None:
    if data.kind == "series" and not (is_number(kind) or pa.types.is_boolean(kind)):
        return f"its type is {kind}, and a series takes numbers: encode it in your source function"
    if _guess(kind):
        return None
    return f"its type is {kind}: turn it into numbers or text with data.features.make"


def _misfit(name: str, kind: pa.DataType, data: Data) -> str:
    """Return why the kind that the spec gives a column cannot be made of its type; empty: it can."""
    return ROWS[_kind(name, kind, data)].misfit(name, kind)


def _kind(name: str, kind: pa.DataType, data: Data) -> str:
    return "numeric" if data.kind == "series" else data.features.kinds.get(name, _guess(kind))


def _guess(kind: pa.DataType) -> str:
    """Return the kind of the columns of a type; empty: no kind reads them."""
    return next((name for name, row in ROWS.items() if row.guess(kind)), "")
