"""Refuses what no table of its size can be read or trained with on this machine: by footers of Parquet, else by sizes.

Figures: docs/decisions/0126-memory-of-tables-is-foretold.md and 0137-files-that-are-read-as-a-whole.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.cores import usable_memory
from models.errors import DataError, UsageError
from models.project_spec.blocks import Image, Spec
from models.sources.delimiter import PARQUET, TEXT, WORKBOOKS
from models.sources.schemes import scheme_of
from models.sources.source import Source
from models.training.costs.table_memory import FITS, LEAST_CELLS, FitSize, fitted_rows
from models.training.costs.whole_tables import check_whole_table

_LEAST_BYTES = 1 << 20
"""Of a file that is looked at: a smaller one is not opened, which would import Arrow."""
_OF_BYTE = {
    ".json": 10,
    **dict.fromkeys((".jsonl", ".ndjson"), 2),
    **dict.fromkeys(WORKBOOKS, 10),
    **dict.fromkeys(TEXT, 15),
}
"""Bytes of memory at least for a byte of a file that is read as a whole, compressed or not."""
_OF_LEVEL = 3
"""Bytes of memory at least for a level of a pixel while pictures are prepared."""
_READ = (*PARQUET, *_OF_BYTE)


def check_source(spec: Spec, base: Path) -> None:
    """Refuse what a file of this machine or a folder of them is too large for, by footers of Parquet or sizes alone.

    Rows that `data.deduplicate` or `data.newest` leaves out are not known yet: then only the prepared rows tell.

    Raises:
        UsageError: Says what is needed, what there is, and what would fit.
    """
    path = scheme_of(spec.data.source).local(Source(spec.data.source, base))
    if path is None or (path.is_file() and (_suffix_of(path) not in _READ or path.stat().st_size < _LEAST_BYTES)):
        return
    import pyarrow.parquet as pq

    from models.data.columns import choose
    from models.sources.folders import data_files
    from models.sources.read import UNREADABLE

    try:
        files = data_files(path)
        if not files or files[0].suffix not in PARQUET:
            _check_sizes(files)
            _check_pictures(files, spec.data.image)
            return
        rows, schema = sum(pq.read_metadata(file).num_rows for file in files), pq.read_schema(files[0])
        if rows * len(schema) < LEAST_CELLS:
            return
        check_whole_table(spec.data, rows, schema)
        if spec.data.deduplicate or spec.data.newest:
            return
        columns = choose(schema, spec.data)
    except (*UNREADABLE, DataError):
        return  # ingest says what is wrong with the file
    rows -= sum(_nulls(files, name) for name in spec.data.targets)
    numbers = len(columns.of("numeric"))
    split = spec.data.split
    fitted = fitted_rows(
        spec.train.rows, round(rows * (1 - split.test - split.validation)), round(rows * split.validation)
    )
    size = FitSize(fitted, numbers, [1] * (len(columns.inputs) - numbers))
    FITS[spec.data.kind](spec, size, base)


def _suffix_of(path: Path) -> str:
    """Return the suffix of a file, behind which there may be one of a compression."""
    return next((suffix for suffix in map(str.lower, reversed(path.suffixes)) if suffix in _READ), "")


def _check_sizes(files: Sequence[Path]) -> None:
    """Refuse files that are read as a whole and cannot fit."""
    num_bytes, memory = sum(file.stat().st_size for file in files), usable_memory()
    suffix = _suffix_of(files[0]) if files else ""
    needed = _OF_BYTE.get(suffix, 0) * num_bytes
    if needed > memory:
        cure = (
            f"take a part of it, of about {num_bytes * memory / needed / 1e9:,.3g} GB"
            if suffix in TEXT
            else "write it as Parquet or CSV, which are read in parts"
        )
        raise UsageError(
            f"data.source: {files[0]}: {suffix} is read as a whole, which needs at least {needed / 1e9:,.3g} GB for "
            f"{num_bytes / 1e9:,.3g} GB, but this machine has {memory / 1e9:,.3g} GB of memory: {cure}"
        )


def _check_pictures(files: Sequence[Path], image: Image | None) -> None:
    """Refuse pictures that are prepared as a whole and cannot fit."""
    from models.sources.picture_folders import is_picture

    num, memory = sum(map(is_picture, files)), usable_memory()
    needed = 0 if image is None else _OF_LEVEL * num * image.height * image.width * image.channels
    if image is not None and needed > memory:
        raise UsageError(
            f"data.image: {num:,} pictures of {image.height} x {image.width} x {image.channels} are prepared as a "
            f"whole, which needs at least {needed / 1e9:,.3g} GB, but this machine has {memory / 1e9:,.3g} GB: "
            f"take at most about {int(num * memory / needed):,} of them, or a smaller height and width"
        )


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
