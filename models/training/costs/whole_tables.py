"""What needs all rows of a table at once, and is refused before any is read if they cannot fit into memory.

Figures and how they were measured: docs/decisions/0126-memory-of-tables-is-foretold.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from models.cores import usable_memory
from models.errors import UsageError
from models.kinds.data_kind import PerDataKind
from models.project_spec.blocks import Data, Spec

if TYPE_CHECKING:
    import pyarrow as pa

_FRAMES, _SERIES = 2, 60
"""Own functions get a frame of all rows, and its result is one more; series were measured at 120 bytes a cell."""


def check_whole_table(data: Data, rows: int, schema: pa.Schema) -> None:
    """Refuse own functions of features and series whose rows, which they need at once, cannot fit.

    Args:
        data: The spec's block.
        rows: Of the source.
        schema: Of the source.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    made = {"data.features.make": data.features.make, "data.features.fit": data.features.fit}
    key = next((key for key, function in made.items() if function), "data.kind")
    of_row = _WHOLE[data.kind](schema) if key == "data.kind" else _FRAMES * _width(schema)
    needed, memory = float(rows) * of_row, usable_memory()
    if needed <= memory:
        return
    what = f"{data.kind} is prepared as a whole" if key == "data.kind" else f"{made[key]} gets all rows at once"
    raise UsageError(
        f"{key}: {what}, which needs at least {needed / 1e9:,.3g} GB for {rows:,} rows of {len(schema)} columns, "
        f"but this machine has {memory / 1e9:,.3g} GB: take at most about {int(rows * memory / needed):,} rows or "
        "fewer columns in the source"
        + ("" if key == "data.kind" else ", or make these columns there, in a query or a file that is written in parts")
    )


def _width(schema: pa.Schema) -> int:
    """Return the bytes of a row of a data frame at least: of texts and other objects their references alone."""
    from pyarrow import types

    return sum(max(1, kind.bit_width // 8) if types.is_primitive(kind) else 8 for kind in schema.types)


def _in_parts(schema: pa.Schema) -> int:
    del schema
    return 0


_WHOLE: PerDataKind[Callable[[pa.Schema], int]] = {
    "table": _in_parts,
    "image": _in_parts,
    "series": lambda schema: _SERIES * len(schema),
    "text": _in_parts,
}
"""Bytes of a row that preparing needs at least; 0: it is done in parts, or the text's own limits hold."""


def check_raw(spec: Spec, raw: Path) -> None:
    """Refuse the raw table of any source that what the spec asks for needs at once; see `check_whole_table`.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    import pyarrow.parquet as pq

    check_whole_table(spec.data, pq.read_metadata(raw).num_rows, pq.read_schema(raw))
