"""The parts of a table that Great Expectations gets: slices of rows, whole columns, and rows of equal values.

Checks of single rows get slices of the rows, checks of uniqueness parts that divide no equal values, and all others
whole columns, of which those that compare with the champion's data get every n-th row where they are large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models import scratch
from models.cores import usable_memory
from models.errors import UsageError
from models.identity.hashing import hash_rows
from models.project_spec import references
from models.project_spec.reserved_columns import POSITION_COLUMN
from models.validation.expectation_arguments import OF_EQUAL_VALUES, QUERY, ROW_WISE, columns_of
from models.validation.expectations import ExpectationCheck

FRAME_BYTES = 96 << 20
"""Of the table's columns that the engine gets at a time: it needs some ten times as much."""
_VALUES_BYTES = 6 << 20
"""Of values whose uniqueness the engine checks at a time: it took 283 MB for 32 MB of different ids."""
_SLICE_BYTES, _SLICE_ROWS = 32 << 20, 1 << 20
"""Of a larger table, what the engine gets at a time; it takes some 60 bytes a row, of short texts and flags too."""
SHOWN = 3
_ENGINES_SHARE = 5
"""Times its size in Arrow that a whole column takes: the frame, the engine's hashes of it, and what a check makes."""


Sizes = Mapping[str, int]
"""Bytes of the columns of a table, by name."""


class Part(NamedTuple):
    """A part of the table: the checks that it answers, by their positions, and its rows' numbers, int64 (rows,)."""

    table: pa.Table
    positions: list[int]
    rows: np.ndarray


def parts_of(
    table: pa.Table,
    checks: Sequence[ExpectationCheck],
    positions: list[int],
    spared: np.ndarray | None,
    sizes: Sizes,
    stored: Path | None = None,
) -> Iterator[Part]:
    """Yield the parts that the engine gets: all at once if they are small, else slices of rows, and whole columns.

    `stored`: the Parquet file whose first rows are the table. Slices come from it: of a mapped table, whose columns are
    files of their own, the system reads each page many times where memory is short.
    """
    for is_strict in (False, True):
        included = np.ones(table.num_rows, dtype=bool) if spared is None or not is_strict else ~spared
        chosen = [position for position in positions if _is_strict(checks[position], spared) == is_strict]
        for position in chosen:
            if checks[position].expectation == QUERY:
                yield _part(table, table.column_names, [position], included, slice(0, table.num_rows))
        counts = [position for position in chosen if is_of_count(checks[position])]
        if counts:
            yield Part(table.select([]), counts, scratch.positions_of(included))
        chosen = [position for position in chosen if checks[position].expectation != QUERY and position not in counts]
        of_one_row = _of_one_row(table, sizes, checks, chosen)
        if of_one_row:
            chosen = [position for position in chosen if position not in of_one_row]
            yield _part(table, columns_read(table, checks, of_one_row), of_one_row, included, slice(0, 1))
        row_wise = [position for position in chosen if checks[position].expectation in ROW_WISE]
        columns, length = columns_read(table, checks, row_wise), table.num_rows
        if length > _SLICE_ROWS or _num_bytes(sizes, columns_read(table, checks, chosen)) > FRAME_BYTES:
            length = max(1, min(_SLICE_ROWS, length * _SLICE_BYTES // max(1, _num_bytes(sizes, columns))))
            chosen = [position for position in chosen if position not in row_wise]
            for start, rows in _slices(table, columns, length, stored) if row_wise else ():
                yield _chosen(rows, row_wise, included, start)
            of_values = [position for position in chosen if _is_of_equal_values(checks[position])]
            chosen = [position for position in chosen if position not in of_values]
            for position in of_values:
                yield from _parts_of_values(table, sizes, columns_read(table, checks, [position]), position, included)
        for together in _batches(table, sizes, checks, chosen):
            columns = columns_read(table, checks, together)
            sampled = _sampled(included, -(-_num_bytes(sizes, columns) // FRAME_BYTES), checks[together[0]])
            yield _part(table, columns, together, sampled, slice(0, table.num_rows))


def refuse_too_large(
    table: pa.Table, checks: Sequence[ExpectationCheck], positions: Sequence[int], sizes: Sizes
) -> None:
    """Refuse checks of whole columns for which there is not enough memory.

    Raises:
        UsageError: Names the first, its column, and a check that reads the table in parts.
    """
    for position in positions:
        check, columns = checks[position], columns_read(table, checks, [position])
        size = _num_bytes(sizes, columns)
        in_parts = check.expectation in (QUERY, *ROW_WISE) or _is_of_equal_values(check) or check.origin == "champion"
        by_itself = is_of_count(check) or _is_of_one_row(check, table.schema)
        if size <= FRAME_BYTES or in_parts or by_itself or size * _ENGINES_SHARE < usable_memory():
            continue
        raise UsageError(
            f"data.expectations: {check.expectation} of {', '.join(map(repr, columns[:SHOWN]))}: reads "
            f"{table.num_rows:,} rows at once, for which Great Expectations takes some "
            f"{size * _ENGINES_SHARE / 1e9:.1f} GB, and {usable_memory() / 1e9:.1f} GB are there: ask the same by "
            f"`{QUERY}`, whose query reads the table in parts, or give more memory"
        )


def is_of_count(check: ExpectationCheck) -> bool:
    """Return True if the answer is the number of all rows."""
    return check.expectation.startswith("table_row_count") and "row_condition" not in check.arguments


def _sampled(included: np.ndarray, step: int, check: ExpectationCheck) -> np.ndarray:
    """Return every `step`-th row for a comparison with the champion's data, else all: bool (rows,)."""
    if step < 2 or check.origin != "champion":
        return included
    sampled = np.zeros(len(included), dtype=bool)
    sampled[::step] = included[::step]
    return sampled


def _of_one_row(table: pa.Table, sizes: Sizes, checks: Sequence[ExpectationCheck], positions: list[int]) -> list[int]:
    """Return the checks that any row answers; none of a small table, which is a single part."""
    if table.num_rows <= _SLICE_ROWS and _num_bytes(sizes, columns_read(table, checks, positions)) <= _SLICE_BYTES:
        return []
    return [position for position in positions if _is_of_one_row(checks[position], table.schema)]


def _is_of_one_row(check: ExpectationCheck, schema: pa.Schema) -> bool:
    """Return True if any row has the answer: names of columns, or the type of a column of numbers or times."""
    if _is_of_names(check):
        return True
    if check.expectation not in ("column_values_to_be_of_type", "column_values_to_be_in_type_list"):
        return False
    kind = schema.field(check.arguments["column"]).type
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind)
    return bool(is_plain and "row_condition" not in check.arguments)


def _is_of_equal_values(check: ExpectationCheck) -> bool:
    return check.expectation in OF_EQUAL_VALUES and "row_condition" not in check.arguments


def _parts_of_values(
    table: pa.Table, sizes: Sizes, columns: list[str], position: int, included: np.ndarray
) -> Iterator[Part]:
    """Yield parts of some `_VALUES_BYTES` that divide no rows which are equal in these columns."""
    num_parts = 1 + max(_num_bytes(sizes, columns) // _VALUES_BYTES, table.num_rows // _SLICE_ROWS)
    hashes = hash_rows(table, columns)
    numbers = scratch.filled(
        len(hashes), np.int32, lambda rows: np.where(included[rows], hashes[rows] % np.uint64(num_parts), num_parts)
    )
    rows = table.select(columns).append_column(POSITION_COLUMN, pa.array(scratch.counted(table.num_rows)))
    for part in scratch.groups(rows, numbers, num_parts):
        yield Part(part.select(columns), [position], part.column(POSITION_COLUMN).to_numpy())


def _is_strict(check: ExpectationCheck, spared: np.ndarray | None) -> bool:
    return spared is not None and check.origin == "spec" and check.severity == "reject"


def _batches(
    table: pa.Table, sizes: Sizes, checks: Sequence[ExpectationCheck], positions: list[int]
) -> Iterator[list[int]]:
    """Yield positions of checks whose columns together are at most `_SLICE_BYTES`, or those of a single check."""
    together: list[int] = []
    for position in sorted(positions, key=lambda position: columns_read(table, checks, [position])):
        if together and _num_bytes(sizes, columns_read(table, checks, [*together, position])) > _SLICE_BYTES:
            yield together
            together = []
        together.append(position)
    if together:
        yield together


def _slices(table: pa.Table, columns: list[str], length: int, stored: Path | None) -> Iterator[tuple[int, pa.Table]]:
    """Yield slices of some columns of at most `length` rows, each with the number of its first row."""
    if stored is None:
        yield from ((start, table.select(columns).slice(start, length)) for start in range(0, table.num_rows, length))
        return
    start = 0
    with pq.ParquetFile(stored, pre_buffer=False) as file:
        for batch in file.iter_batches(length, columns=columns, use_threads=False):
            rows = pa.Table.from_batches([batch]).slice(0, table.num_rows - start)
            if rows.num_rows:
                yield start, rows
            start += rows.num_rows


def _part(table: pa.Table, columns: list[str], positions: list[int], included: np.ndarray, place: slice) -> Part:
    return _chosen(table.select(columns).slice(place.start, place.stop - place.start), positions, included, place.start)


def _chosen(part: pa.Table, positions: list[int], included: np.ndarray, start: int) -> Part:
    """Return the included rows of a slice that begins with row `start`."""
    mask = included[start : start + part.num_rows]
    rows = scratch.positions_of(mask)
    rows += start
    return Part(part if len(rows) == part.num_rows else part.filter(pa.array(mask)), positions, rows)


def sizes_of(table: pa.Table) -> Sizes:
    """Return the bytes of each column; of a mapped column of texts Arrow looks at each of its parts."""
    return {name: table.column(name).nbytes for name in table.column_names}


def _num_bytes(sizes: Sizes, columns: list[str]) -> int:
    return sum(sizes[name] for name in columns)


def columns_read(table: pa.Table, checks: Sequence[ExpectationCheck], positions: list[int]) -> list[str]:
    """Return the columns that some checks read, in the table's order: at least one, and all if a check may read any."""
    chosen = [checks[position] for position in positions]
    if any(_reads_all(check) for check in chosen):
        return list(table.column_names)
    named = {name for check in chosen for name in columns_of(check.expectation, check.arguments)}
    return [name for name in table.column_names if name in named] or list(table.column_names[:1])


def _reads_all(check: ExpectationCheck) -> bool:
    names_none = references.is_own_code(check.expectation) and not any(columns_of(check.expectation, check.arguments))
    return names_none or _is_of_names(check) or "row_condition" in check.arguments


def _is_of_names(check: ExpectationCheck) -> bool:
    """Return True if the answer depends on the names of all columns and their order, and on no row."""
    name = check.expectation
    return name.startswith("table_column") or name == "column_to_exist"
