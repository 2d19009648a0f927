"""What needs all rows of a table at once, and is refused before any is read if they cannot fit into memory.

Figures and how they were measured: docs/decisions/0126-memory-of-tables-is-foretold.md.
"""

from __future__ import annotations

from pathlib import Path

from models.cores import usable_memory
from models.errors import UsageError
from models.kinds.data_kind import PerDataKind
from models.project_spec.blocks import Data, Spec

_MADE, _SERIES = 16, 60
"""Bytes of a cell: own functions get a frame of all rows, and its result is one more; series were measured at 120."""


def check_whole_table(data: Data, rows: int, columns: int) -> None:
    """Refuse own functions of features and series whose rows, which they need at once, cannot fit.

    Args:
        data: The spec's block.
        rows: Of the source.
        columns: Of the source.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    whole = _WHOLE[data.kind]
    made = {"data.features.make": data.features.make, "data.features.fit": data.features.fit}
    key, cell = next(((key, _MADE) for key, function in made.items() if function), ("data.kind", whole))
    needed, memory = float(rows) * columns * cell, usable_memory()
    if needed <= memory:
        return
    what = f"{data.kind} is prepared as a whole" if key == "data.kind" else f"{made[key]} gets all rows at once"
    raise UsageError(
        f"{key}: {what}, which needs at least {needed / 1e9:,.3g} GB for {rows:,} rows of {columns} columns, but this "
        f"machine has {memory / 1e9:,.3g} GB of memory: take at most about {int(rows * memory / needed):,} rows or "
        "fewer columns in the source"
        + ("" if key == "data.kind" else ", or make these columns there, in a query or a file that is written in parts")
    )


_WHOLE: PerDataKind[int] = {"table": 0, "image": 0, "series": _SERIES, "text": 0}
"""Bytes of a cell that preparing needs at least; 0: it is done in parts, or the text's own limits hold."""


def check_raw(spec: Spec, raw: Path) -> None:
    """Refuse the raw table of any source that what the spec asks for needs at once; see `check_whole_table`.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(raw)
    check_whole_table(spec.data, metadata.num_rows, metadata.num_columns)
