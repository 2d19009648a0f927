"""Columns of texts that are dates in a form of their own, such as 31.05.2024, as times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.inference.input_schema import refusing
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
    for place, field in enumerate(table.schema):
        form = forms.get(field.name)
        if form and (is_text(field.type) or pa.types.is_integer(field.type)):
            table = table.set_column(place, field.name, _times(table.column(place), field.name, form, first_row))
    return table


def _times(written: pa.ChunkedArray, name: str, form: str, first_row: int) -> pa.ChunkedArray:
    def times_of(part: pa.ChunkedArray) -> pa.ChunkedArray:
        different = pc.unique(part)
        times = [
            time.astimezone(UTC).replace(tzinfo=None) if isinstance(time, datetime) and time.tzinfo else time or None
            for time in written_times(different.to_pylist(), name, form)
        ]
        return pa.array(times, pa.timestamp("us")).take(pc.index_in(part, different))

    try:
        return scratch.by_parts(written, times_of)
    except RowError:
        for start in range(0, len(written), scratch.PART):  # which names the row
            refusing(written_times)(written.slice(start, scratch.PART).to_pylist(), name, form, first_row + start)
        raise
