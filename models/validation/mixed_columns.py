"""Mixed-type columns: text columns with numbers in almost all cells, mostly a mistake in the data."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from models.project_spec.blocks import Data
from models.readable import as_shown

LEAST_SHARE = 0.9
LOOKED_AT = 100_000
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


def odd_cells(table: pa.Table, data: Data) -> list[str]:
    """Return a message for each mixed-type column.

    Args:
        table: The table as it was read.
        data: The spec's data block; columns with a kind in the spec and columns that are no features are skipped.

    Cost: `LOOKED_AT` rows of each text column; linear in the number of columns.
    """
    left_alone = {*data.targets, *data.features.drop, *data.features.kinds}
    table_names = dict.fromkeys(table.column_names)
    names = [name for name in data.features.columns or table_names if name in table_names and name not in left_alone]
    findings = [_odd(table.column(name).slice(0, LOOKED_AT), name, data) for name in names]
    return [text for text in findings if text]


def _odd(values: pa.ChunkedArray, name: str, data: Data) -> str:
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return ""
    is_number = pc.match_substring_regex(values, _NUMBER)
    numbers, num_present = pc.sum(is_number).as_py() or 0, len(values) - values.null_count
    if numbers == num_present or numbers < LEAST_SHARE * num_present:
        return ""
    row = pc.index(pc.fill_null(is_number, True), False).as_py()
    cell = as_shown(repr(values[row].as_py()[:40]), data.show_rows, lambda _: "none")
    message = f"column {name!r}: {numbers:,} of {num_present:,} values are numbers, row {row + 1} is {cell}"
    return f"{message}: read as text; correct it or leave it empty, or name the kind in data.features.kinds"
