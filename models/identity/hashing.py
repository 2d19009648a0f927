"""Keyed 64-bit hashes of rows, in numpy: the basis of splits and deduplication.

A hash depends on the values alone: not on the column order, the chunking, the machine, or whether a whole
number is stored as integer or float. A missing value adds nothing to a row's hash, so a new column does not change
the hashes of old rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.errors import DataError
from models.sources.whole_numbers import MOST_EXACT, are_large

Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]

MOST_KNOWN = 1 << 20
"""Rows that a model knows whose identities are stored: of more those of the smallest hashes, as a sample."""
_BLOCK_BYTES = 1 << 18
_SORTED = 1 << 21
"""Hashes that are sorted at a time."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hash_rows(table: pa.Table, columns: list[str]) -> Hashes:
    """Return one hash for each row over `columns`; equal rows have equal hashes."""

    def hashes_of(part: slice) -> Hashes:
        rows = table.slice(part.start, part.stop - part.start)
        hashes = np.zeros(rows.num_rows, dtype=np.uint64)
        for name in columns:
            hashes += hash_values(rows.column(name), name)
        return _mix(hashes)

    return scratch.filled(table.num_rows, np.uint64, hashes_of)


def row_identities(table: pa.Table, id_column: str | None = None) -> Hashes:
    """Return one hash for each row that identifies it in any order: of its id, or of its values if it has no id.

    Equal rows get different hashes: the second and later ones are mixed with a counter. Columns of lists and structs
    are ignored.
    """
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    hashes = hash_rows(table, plain if id_column is None else [id_column])
    nameless = np.zeros(0, np.int64) if id_column is None else np.flatnonzero(missing(table.column(id_column)))
    if len(nameless):
        hashes[nameless] = hash_rows(table, plain)[nameless]
    for order, starts in equal_runs(hashes):
        repeats = np.arange(len(order)) - starts
        again = np.flatnonzero(repeats)
        hashes[order[again]] = _mix(hashes[order[again]] + repeats[again].astype(np.uint64))
    return hashes


def least(blocks: Iterable[Hashes], most: int) -> Hashes:
    """Return the smallest different hashes of some blocks, ascending: at most so many."""
    smallest: Hashes = np.zeros(0, np.uint64)
    for block in blocks:
        smaller = block[block < smallest[-1]] if len(smallest) == most else block
        ordered = np.sort(np.concatenate([smallest, smaller]))  # `np.unique` of two million takes 2.7 CPU-s, this .04
        smallest = ordered[np.diff(ordered, prepend=~ordered[:1]) != 0][:most]
    return smallest


def stored_identities(identities: Hashes, is_known: np.ndarray) -> Hashes:
    """Return identities as they are stored: of the rows that a model knows but for a sample the largest number.

    Args:
        identities: Of the rows.
        is_known: Which of them a model learns from or is selected on, bool (row,).
    """
    sample = least((identities[part][is_known[part]] for part in scratch.parts(len(identities))), MOST_KNOWN)
    if len(sample) < MOST_KNOWN:
        return identities

    def stored(part: slice) -> Hashes:
        is_beyond = is_known[part] & (identities[part] > sample[-1])
        return np.where(is_beyond, np.uint64(2**64 - 1), identities[part])

    return scratch.filled(len(identities), np.uint64, stored)


def equal_runs(hashes: Hashes) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the positions of rows in the order of their hashes, and in this order where the run of equal ones starts.

    Equal hashes are in the order of their rows, and in one run. Memory is some 100 MB, however many rows there are.

    Args:
        hashes: One for each row (row,).
    """
    num_parts = 1 + len(hashes) // _SORTED

    def bits_of(rows: slice) -> np.ndarray:
        upper = (hashes[rows] >> np.uint64(48)).astype(np.uint32)
        return np.asarray((upper * np.uint32(num_parts) >> np.uint32(16)).astype(np.uint16))

    bits = scratch.filled(len(hashes), np.uint16, bits_of) if num_parts > 1 else None
    for part in range(num_parts):
        places = np.arange(len(hashes)) if bits is None else np.flatnonzero(bits == part)
        ordered = hashes[places]
        by_hash = np.argsort(ordered, kind="stable")
        order, ordered = places[by_hash], ordered[by_hash]
        is_first = np.diff(ordered, prepend=~ordered[:1]) != 0
        yield order, np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))


def keyed(hashes: Hashes, seed: int) -> Hashes:
    """Return the hashes remixed with a seed."""
    key = _mix(np.array([seed % 2**64], dtype=np.uint64) * _GOLDEN)
    return scratch.filled(len(hashes), np.uint64, lambda part: _mix(hashes[part] ^ key))


def hash_values(column: pa.ChunkedArray, name: str, seed: int = 0) -> Hashes:
    """Return one hash for each value, keyed with the column's name; 0 for a missing value.

    Raises:
        DataError: The column holds lists or structs, which have no hash.
    """
    # An array with one entry: numpy warns of integer overflow in scalars, but not in arrays.
    keyed = np.array([seed % 2**64], dtype=np.uint64) * _GOLDEN
    key = _mix(_hash_text(pa.array([name]).cast(pa.large_binary())) + keyed)

    def hashes_of(part: slice) -> Hashes:
        rows = column.slice(part.start, part.stop - part.start)
        values = [_hash_chunk(chunk, name) for chunk in rows.chunks]
        hashes = _mix(np.concatenate(values or [np.zeros(0, dtype=np.uint64)]) ^ key)
        hashes[missing(rows)] = 0
        return hashes

    return scratch.filled(len(column), np.uint64, hashes_of)


def unit_interval(hashes: Hashes) -> np.ndarray:
    """Return hashes as float64, uniform in [0, 1)."""
    return scratch.filled(
        len(hashes), np.float64, lambda part: (hashes[part] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    )


def missing(column: pa.ChunkedArray) -> np.ndarray:
    """Return True where a value is null or NaN (rows,)."""
    flags: np.ndarray = pc.is_null(column, nan_is_null=True).to_numpy()
    return flags


def _hash_chunk(chunk: pa.Array, name: str) -> Hashes:
    kind = chunk.type
    if pa.types.is_dictionary(kind):
        chunk, kind = chunk.dictionary_decode(), kind.value_type
    if pa.types.is_time(kind):
        chunk = chunk.cast(pa.time64("us"), safe=False).cast(pa.int64())
    elif pa.types.is_duration(kind):
        chunk = chunk.cast(pa.duration("us"), safe=False).cast(pa.int64())
    elif pa.types.is_temporal(kind):
        chunk = chunk.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False).cast(pa.int64())
    elif pa.types.is_decimal(kind):
        return _hash_decimals(chunk)
    elif pa.types.is_boolean(kind):
        chunk = chunk.cast(pa.float64())
    if pa.types.is_integer(chunk.type) or pa.types.is_floating(chunk.type):
        return _hash_numbers(chunk)
    try:
        encoded = chunk.cast(pa.large_binary()).dictionary_encode()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise DataError(
            f"column {name!r}: got type {kind}, expected numbers, text, dates, booleans or bytes: "
            "flatten it in your source function, or leave it out there"
        ) from error
    if not len(encoded.dictionary):
        return np.zeros(len(chunk), dtype=np.uint64)
    hashes: Hashes = _hash_text(encoded.dictionary)[encoded.indices.fill_null(0).to_numpy()]
    return hashes


def _hash_numbers(chunk: pa.Array) -> Hashes:
    values: np.ndarray = chunk.fill_null(0).to_numpy()
    floats = values.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    bits = floats.view(np.uint64)
    if pa.types.is_integer(chunk.type):
        # Two integers beyond share one float: keep the integer itself.
        bits = np.where(np.abs(floats) < MOST_EXACT, bits, values.astype(np.uint64))
    return _mix(bits)


def _hash_decimals(chunk: pa.Array) -> Hashes:
    """Return the hashes of decimals: those of floats, and of large ones those of their texts."""
    floats = chunk.cast(pa.float64())
    hashes = _hash_numbers(floats)
    large = pc.fill_null(are_large(floats), False).to_numpy(zero_copy_only=False)
    if large.any():
        hashes[large] = _hash_text(chunk.filter(pa.array(large)).cast(pa.string()).cast(pa.large_binary()))
    return hashes


def _hash_text(array: pa.Array) -> Hashes:
    """A multilinear hash: each byte times a random factor of its position, summed, mixed with the length."""
    _, offset_buffer, data_buffer = array.buffers()
    stop = array.offset + len(array) + 1
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[array.offset : stop]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    lengths = np.diff(offsets)
    factors = _mix(np.arange(1, int(lengths.max(initial=0)) + 1, dtype=np.uint64)) | np.uint64(1)
    sums = np.zeros(len(lengths), dtype=np.uint64)
    start = 0
    while start < len(lengths):
        end = max(start + 1, int(np.searchsorted(offsets, offsets[start] + _BLOCK_BYTES)) - 1)
        end = min(end, len(lengths))
        sums[start:end] = _weighted_sums(data, offsets[start : end + 1], lengths[start:end], factors)
        start = end
    return _mix(sums + lengths.astype(np.uint64) * _GOLDEN)


def _weighted_sums(data: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, factors: Hashes) -> Hashes:
    block = data[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    starts = offsets[:-1] - offsets[0]
    positions = np.arange(len(block)) - np.repeat(starts, lengths)
    running = np.zeros(len(block) + 1, dtype=np.uint64)
    np.cumsum(block * factors[positions], out=running[1:])
    sums: Hashes = running[starts + lengths] - running[starts]
    return sums


def _mix(values: Hashes) -> Hashes:
    """Apply the finaliser of splitmix64.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class SortedHashSet:
    """A set of hashes seen before, with eight bytes for each hash.

    They are stored in sorted runs, each more than twice as long as the next: few runs to search, and few merges.
    """

    def __init__(self, *batches: Hashes) -> None:
        self._runs: list[Hashes] = []
        for hashes in batches:
            self.first_places(hashes)

    def new(self, hashes: Hashes) -> np.ndarray:
        """Return which of `hashes` are new (value,), and add them to the set."""
        chosen = np.zeros(len(hashes), dtype=bool)
        chosen[self.first_places(hashes)] = True
        return chosen

    def first_places(self, hashes: Hashes) -> np.ndarray:
        """Return the ascending positions in `hashes` of the first occurrence of each new hash, and store them."""
        unique, first = np.unique(hashes, return_index=True)
        new = np.ones(len(unique), dtype=bool)
        for run in self._runs:
            new &= run[np.minimum(run.searchsorted(unique), len(run) - 1)] != unique
        if new.any():
            self._remember(unique[new])
        places: np.ndarray = np.sort(first[new])
        return places

    def _remember(self, hashes: Hashes) -> None:
        self._runs.append(hashes)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]), kind="stable")
