"""Where large arrays lie: in memory, or in files that are mapped into it, whose pages the system takes back.

Within `arrays_in(folder)` arrays from `LARGE_BYTES` on lie in files without a name: nothing is left of them when they
are no longer used, however their process ends. Functions work on `PART` rows at a time, so that what they make on the
way does not grow with the table.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from models.files import storing

LARGE_BYTES = 4 << 20
"""Of an array that gets a file of its own: half a million numbers."""
PART = 1 << 20
"""Rows that are worked on at a time."""
_COLUMN_FILES, _GROUP_FILES = 32, 128
"""Of a table, at most: each is open while it is written."""
ROW_GROUP = 1 << 16
"""Rows of a group in the files of large tables."""


class _Place(NamedTuple):
    folder: Path
    large: int


_PLACE: ContextVar[_Place | None] = ContextVar("place", default=None)


@contextlib.contextmanager
def arrays_in(folder: Path, large: int = LARGE_BYTES) -> Iterator[None]:
    """Let the arrays that are made in this block lie on the disk of a folder, from `large` bytes on."""
    token = _PLACE.set(_Place(folder, large))
    try:
        yield
    finally:
        _PLACE.reset(token)


def place() -> Path | None:
    """Return the folder on whose disk large arrays lie; None: they lie in memory."""
    current = _PLACE.get()
    return None if current is None else current.folder


def parts(num_rows: int) -> Iterator[slice]:
    """Yield slices of `PART` rows; one, if there are none."""
    for start in range(0, max(1, num_rows), PART):
        yield slice(start, min(start + PART, num_rows))


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array without values yet.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    current, kind = _PLACE.get(), np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if current is None or kind.hasobject or size < max(1, current.large):
        return np.empty(shape, kind)
    with _nameless(current.folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)  # else a full disk would end the process at a later write
        with pa.memory_map(_path(file), "r+") as pages:
            return np.asarray(_Pages(pages.read_buffer(), kind)).reshape(shape)


def filled(shape: int | tuple[int, ...], dtype: DTypeLike, values: Callable[[slice], Any]) -> NDArray[Any]:
    """Return an array of what `values` returns for each part of its rows."""
    array = empty(shape, dtype)
    for part in parts(len(array)):
        array[part] = values(part)
    return array


def counted(num: int) -> NDArray[np.int64]:
    """Return the numbers from 0 on, int64 (num,)."""
    return filled(num, np.int64, lambda part: np.arange(part.start, part.stop))


def computed(function: Callable[[NDArray[Any]], NDArray[Any]], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what a function makes of numbers, float64 (row,): of each by itself."""
    return filled(len(values), np.float64, lambda part: function(values[part]))


def chosen(values: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the rows for which a mask (rows,) is True: `values[mask]`."""
    array, end = empty((int(np.count_nonzero(mask)), *values.shape[1:]), values.dtype), 0
    for part in parts(len(values)):
        rows = values[part][mask[part]]
        start, end = end, end + len(rows)
        array[start:end] = rows
    return array


def positions_of(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return where a mask (rows,) is True, int64."""
    array, end = empty(int(np.count_nonzero(mask)), np.int64), 0
    for part in parts(len(mask)):
        places = np.flatnonzero(mask[part]) + part.start
        start, end = end, end + len(places)
        array[start:end] = places
    return array


def at(values: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
    """Return the rows at ascending positions, each named once: `values[positions]`."""
    if len(positions) == len(values):
        return values
    return filled((len(positions), *values.shape[1:]), values.dtype, lambda part: values[positions[part]])


def put(array: NDArray[Any], positions: NDArray[np.int64], values: NDArray[Any]) -> None:
    """Set the values at some positions, each named once, in the order of the positions: a page is written once."""
    order = np.argsort(positions)
    array[positions[order]] = values[order]


def ranks(values: NDArray[Any], different: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each value (row,) among all different ones, which ascend: int64 (row,)."""

    def ranks_of(part: slice) -> NDArray[np.int64]:
        order = np.argsort(values[part])  # else each search would be of a page elsewhere
        places = np.empty(len(order), np.int64)
        places[order] = np.searchsorted(different, values[part][order])
        return places

    return filled(len(values), np.int64, ranks_of)


def unique(values: NDArray[Any]) -> NDArray[Any]:
    """Return the different values (row,), ascending; none of them NaN."""
    if len(values) <= PART:
        return np.unique(values)
    ordered = filled(len(values), values.dtype, lambda part: values[part])
    ordered.sort()
    num, last = 0, None
    for part in parts(len(ordered)):
        block = ordered[part]
        is_first = np.r_[last is None or block[0] != last, block[1:] != block[:-1]]
        last, firsts = block[-1], block[is_first]
        ordered[num : num + len(firsts)] = firsts
        num += len(firsts)
    return ordered[:num]


def joined(blocks: Iterable[NDArray[Any]], dtype: DTypeLike) -> NDArray[Any]:
    """Return the rows of some blocks (row,), one block after the other."""
    current, kind = _PLACE.get(), np.dtype(dtype)
    blocks, first, size = iter(blocks), [np.zeros(0, kind)], 0
    for block in blocks:
        first.append(np.ascontiguousarray(block, kind))
        size += first[-1].nbytes
        if current is not None and size >= max(1, current.large):
            break
    if current is None or size < max(1, current.large):
        return np.concatenate(first)
    with _nameless(current.folder) as file:
        for block in itertools.chain(first, blocks):
            file.write(np.ascontiguousarray(block, kind).data)
        file.flush()
        with pa.memory_map(_path(file), "r+") as pages:
            return np.asarray(_Pages(pages.read_buffer(), kind))


def deviation(values: NDArray[np.float64]) -> float:
    """Return the standard deviation of numbers, with the bits of `values.std()`, without a copy of them."""
    num = len(values)
    if num <= PART:
        return float(values.std())
    mean = _total(lambda part: values[part], 0, num) / num
    return float(np.sqrt(_total(lambda part: np.square(values[part] - mean), 0, num) / num))


def _total(values: Callable[[slice], NDArray[np.float64]], start: int, stop: int) -> np.float64:
    """Return a sum in the order of numpy, which halves what is long at multiples of eight."""
    if stop - start <= max(PART, 128):  # numpy adds no more than 128 in a row
        return np.float64(np.add.reduce(values(slice(start, stop))))
    middle = start + (stop - start) // 2 // 8 * 8
    return np.float64(_total(values, start, middle) + _total(values, middle, stop))


def first_values(column: pa.ChunkedArray, most: int) -> pa.Array:
    """Return the different values of a column as they first occur; of more than `most` those of its first parts."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())  # Arrow tells no half floats apart
    values = pc.unique(column.slice(0, 0))
    for part in parts(len(column)):
        values = pc.unique(pa.chunked_array([values, pc.unique(_slice(column, part))], column.type))
        if len(values) > most:
            break
    return values


def numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of numbers as `to_numpy` does."""
    if len(column) <= PART or not pa.types.is_primitive(column.type):
        return np.asarray(column.to_numpy())
    if column.null_count and not pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    kind = column.type.to_pandas_dtype()
    return filled(len(column), kind, lambda part: _slice(column, part).to_numpy())


def by_parts(column: pa.ChunkedArray, function: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return what a function makes of a column, part by part: of each value by itself, all of one type."""
    if len(column) <= PART:
        return function(column)
    made = (function(_slice(column, part)) for part in parts(len(column)))
    first = next(made)
    arrays = itertools.chain([first], made)
    folder = place()
    if folder is None:
        return pa.chunked_array([chunk for array in arrays for chunk in array.chunks], first.type)
    batches = (batch for array in arrays for batch in pa.table({"": array}).to_batches(ROW_GROUP))
    return mapped(batches, pa.schema([("", first.type)]), folder).column(0)


def chosen_values(column: pa.Array | pa.ChunkedArray, mask: NDArray[np.bool_]) -> pa.ChunkedArray:
    """Return the values of a column for which a mask (rows,) is True."""
    return chosen_rows(pa.table({"": column}), mask).column(0)


def chosen_rows(table: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    """Return the rows of a table for which a mask (rows,) is True.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    folder = place()
    if folder is None or table.num_rows <= PART:
        return table.filter(pa.array(mask))
    rows = (
        batch
        for start in range(0, table.num_rows, ROW_GROUP)
        for batch in table.slice(start, ROW_GROUP).filter(pa.array(mask[start : start + ROW_GROUP])).to_batches()
    )
    return mapped(rows, table.schema, folder)


def groups(table: pa.Table, numbers: NDArray[np.integer[Any]], num_groups: int) -> Iterator[pa.Table]:
    """Yield the rows of each group, in their order; large tables are read once and written to files without a name.

    Args:
        table: The rows.
        numbers: The group of each row (row,); rows of others are left out.
        num_groups: Groups have the numbers below it.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    folder = place()
    if folder is None or table.num_rows <= PART:
        yield from (table.filter(pa.array(numbers == number)) for number in range(num_groups))
        return
    num_files = min(num_groups, _GROUP_FILES)
    table = table.append_column("", pa.array(numbers))
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(_nameless(folder)) for _ in range(num_files)]
        with contextlib.ExitStack() as streams:
            writers = [streams.enter_context(pa.ipc.new_stream(file, table.schema)) for file in files]
            for part in parts(table.num_rows):
                file_numbers = np.where(numbers[part] < num_groups, numbers[part] % num_files, num_files)
                order = np.argsort(file_numbers, kind="stable")
                ends = np.cumsum(np.bincount(file_numbers, minlength=num_files))
                rows = table.slice(part.start, part.stop - part.start).take(pa.array(order))
                for writer, start, end in zip(writers, np.r_[0, ends], ends[:num_files], strict=False):
                    writer.write_table(rows.slice(start, end - start))
        for number in range(num_groups):
            rows = _opened(files[number % num_files])
            is_of_group = pc.equal(rows.column(""), number)
            yield (rows if num_files == num_groups else rows.filter(is_of_group)).drop_columns([""])


def mapped(batches: Iterator[pa.RecordBatch], schema: pa.Schema, folder: Path) -> pa.Table:
    """Return the rows of some batches as a table that is mapped from files without a name.

    Each column has a file of its own, of wide tables some columns share one. In one file for all, a look at a column
    made the system read all others, as it reads up to 8 MiB around each page.

    Args:
        batches: The rows; they are written one batch after the other.
        schema: Of all batches.
        folder: The folder on whose disk the files lie.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    parts = [part.tolist() for part in np.array_split(np.arange(len(schema)), min(len(schema), _COLUMN_FILES) or 1)]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(_nameless(folder)) for _ in parts]
        with contextlib.ExitStack() as streams:
            fields = [pa.schema([schema.field(place) for place in part]) for part in parts]
            writers = [streams.enter_context(pa.ipc.new_stream(*pair)) for pair in zip(files, fields, strict=True)]
            for batch in batches:
                for writer, part in zip(writers, parts, strict=True):
                    writer.write_batch(batch.select(part))
        tables = [_opened(file) for file in files]
    if len(tables) == 1:
        return tables[0].replace_schema_metadata(schema.metadata)
    return pa.Table.from_arrays([column for table in tables for column in table.columns], schema=schema)


def _opened(file: Any) -> pa.Table:
    file.flush()
    with pa.memory_map(_path(file)) as pages:
        return pa.ipc.open_stream(pages).read_all()


@contextlib.contextmanager
def _nameless(folder: Path) -> Iterator[Any]:
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            yield file


def _path(file: Any) -> str:
    """Return a path by which Arrow maps an open file: unlike Python's mmap it keeps no descriptor open."""
    return f"/dev/fd/{file.fileno()}"


class _Pages:
    """Mapped pages as numpy takes them; Arrow's own view cannot be written."""

    def __init__(self, buffer: pa.Buffer, kind: np.dtype[Any]) -> None:
        self._buffer = buffer
        self.__array_interface__ = {
            "version": 3,
            "shape": (buffer.size // kind.itemsize,),
            "typestr": kind.str,
            "data": (buffer.address, False),
        }


def _slice(column: pa.ChunkedArray, part: slice) -> pa.ChunkedArray:
    return column.slice(part.start, part.stop - part.start)
