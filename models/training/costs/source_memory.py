"""Refuses by the footers of Parquet files what no table of their size can be trained with on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.errors import DataError
from models.project_spec.blocks import Spec
from models.sources.delimiter import PARQUET
from models.sources.schemes import scheme_of
from models.sources.source import Source
from models.training.costs.table_memory import FITS, LEAST_CELLS, FitSize
from models.training.costs.whole_tables import check_whole_table

_LEAST_BYTES = 1 << 20
"""Of a file that is looked at: a smaller one is not opened, which would import Arrow."""


def check_source(spec: Spec, base: Path) -> None:
    """Refuse what a Parquet file of this machine or a folder of them is too large for, by their footers alone.

    Rows that `data.deduplicate` or `data.newest` leaves out are not known yet: then only the prepared rows tell.

    Args:
        spec: The project's.
        base: The folder of the spec.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    path = scheme_of(spec.data.source).local(Source(spec.data.source, base))
    if path is None or (path.is_file() and (path.suffix not in PARQUET or path.stat().st_size < _LEAST_BYTES)):
        return
    import pyarrow.parquet as pq

    from models.data.columns import choose
    from models.sources.folders import data_files
    from models.sources.read import UNREADABLE

    try:
        files = data_files(path)
        if not files or files[0].suffix not in PARQUET:
            return
        rows, schema = sum(pq.read_metadata(file).num_rows for file in files), pq.read_schema(files[0])
        if rows * len(schema) < LEAST_CELLS:
            return
        check_whole_table(spec.data, rows, len(schema))
        if spec.data.deduplicate or spec.data.newest:
            return
        columns = choose(schema, spec.data)
    except (*UNREADABLE, DataError):
        return  # ingest says what is wrong with the file
    rows -= sum(_nulls(files, name) for name in spec.data.targets)
    numbers = len(columns.of("numeric"))
    size = FitSize(round(rows * (1 - spec.data.split.test)), numbers, [1] * (len(columns.inputs) - numbers))
    FITS[spec.data.kind](spec, size, base)


def _nulls(files: Sequence[Path], name: str) -> int:
    """Return the rows without a value of a column, as far as the footers tell; all of a file that does not tell."""
    import pyarrow.parquet as pq

    count = 0
    for file in files:
        metadata, schema = pq.read_metadata(file), pq.read_schema(file)
        index = schema.get_field_index(name)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        statistics = [group.column(index).statistics for group in groups] if metadata.num_columns == len(schema) else []
        is_counted = index >= 0 and statistics and all(part is not None and part.has_null_count for part in statistics)
        count += sum(part.null_count for part in statistics) if is_counted else metadata.num_rows
    return count
