"""Columns of texts that are dates in a form of their own, such as 31.05.2024, as times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.errors import DataError
from models.inference.row_values import RowError, written_times
from models.inputs.types import is_text


def with_dates(table: pa.Table, forms: Mapping[str, str], first_row: int = 1) -> pa.Table:
    """Return a table in which columns of texts or whole numbers are the times that they say, by `written_times`.

    Args:
        table: The rows.
        forms: By column; columns that the table lacks, or of other types, stay.
        first_row: Number of the first row, for messages.

    Cost: linear, some 6 µs for each different text.

    Raises:
        DataError: A text is neither; names row, column and value.
    """
    for name in forms:
        texts = table.column(name) if name in table.column_names else None
        if texts is not None and (is_text(texts.type) or pa.types.is_integer(texts.type)):
            try:
                times = scratch.by_parts(texts, partial(_of_form, name=name, form=forms[name]))
            except RowError:
                try:
                    written_times(texts.to_pylist(), name, forms[name], first_row)
                except RowError as error:  # which names the row
                    raise DataError(str(error)) from error
                raise
            table = table.set_column(table.column_names.index(name), name, times)
    return table


def _of_form(texts: pa.ChunkedArray, name: str, form: str) -> pa.ChunkedArray:
    different = pc.unique(texts)
    times = [
        time.astimezone(UTC).replace(tzinfo=None) if isinstance(time, datetime) and time.tzinfo else time or None
        for time in written_times(different.to_pylist(), name, form)
    ]
    return pa.array(times, pa.timestamp("us")).take(pc.index_in(texts, different))
