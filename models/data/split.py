"""The assignment of rows to train, validation and test: made once for each row and stable as the data grows.

| by | a row's split is decided by | stable when rows are appended |
|---|---|---|
| random | a keyed hash of its id or its raw values (or of `column`) | unless columns are added or removed |
| hash | a keyed hash of its key | always |
| group | a keyed hash of its group, so a group is never divided | always |
| stratified | the rank of that hash among the rows of its class, of which one trains | except for a few near the cuts |
| position | its position: the first train, the last test | no: a row may move from test towards train, never back |
| time | its time: the oldest train, the newest test | no: a row may move from test towards train, never back |

Equal rows count as different rows, in any order: a counter distinguishes them (`row_identities`). By random and by
stratified they have the split of the first of them, where the columns identify rows
(`models/identity/equal_rows.py`). Shares are exact to about one row for each class for stratified, to one timestamp for
time, and in expectation otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.data.preparation import SPLITS
from models.data.weights import row_weights
from models.errors import DataError
from models.folds import Units
from models.identity.hashing import Hashes, equal_runs, hash_values, keyed, missing, row_identities, unit_interval
from models.inputs.times import parsed_times
from models.inputs.types import is_number
from models.project_spec.blocks import Data, Split

TRAIN, VALIDATION, TEST = range(3)
# Splits that do not read `column`, which may then have missing values.
_WITHOUT_COLUMN = ("stratified", "position")
_MAX_STRATA = 1000


def assign(table: pa.Table, split: Split, target: str, identities: Hashes | None = None) -> np.ndarray:
    """Return the split of each row, int8 (rows,): 0 train, 1 validation, 2 test.

    Args:
        table: The rows.
        split: The split block of the spec.
        target: The column to stratify by.
        identities: Identity hashes of the rows (`row_identities`); None: hashes of their values.

    Cost: linear, except for time (a sort); 336,776 rows of 19 columns take about a fifth of a second.

    Raises:
        DataError: The split's column is absent or has missing values, or a split is empty.
    """
    if split.column is not None and split.by not in _WITHOUT_COLUMN:
        _check_column(table, split)
    if split.by == "time":
        codes = _by_time(times(table.column(str(split.column)), str(split.column)), split)
    elif split.by == "position":
        codes = _by_order(scratch.counted(table.num_rows), split)
    elif split.by == "stratified":
        codes = _stratified(table.column(target), target, split, _row_hashes(table, split, identities))
    else:
        codes = _by_threshold(unit_interval(_row_hashes(table, split, identities)), split)
    check_not_empty(codes, split)
    return codes


def newest(codes: np.ndarray, key: np.ndarray | None, rows: int | None) -> np.ndarray:
    """Return which rows stay, bool (rows,): all except the training rows older than the newest `rows`.

    Args:
        codes: The split of each row.
        key: Time of each row; None: the last rows are the newest.
        rows: How many training rows stay; None: all.
    """
    mask = np.ones(len(codes), dtype=bool)
    if rows is None or np.count_nonzero(codes == TRAIN) <= rows:
        return mask
    training = scratch.positions_of(codes == TRAIN)
    times = training if key is None else scratch.at(key, training)
    ordered = scratch.filled(len(times), times.dtype, lambda part: times[part])
    ordered.partition(len(ordered) - rows)
    oldest = ordered[len(ordered) - rows]
    num_ties = rows - int(np.count_nonzero(ordered[-rows:] > oldest))  # of equal times the last rows stay
    ties = scratch.positions_of(times == oldest)
    mask[training[times < oldest]] = False
    mask[training[ties[: len(ties) - num_ties]]] = False
    return mask


def split_key(table: pa.Table, split: Split) -> np.ndarray | None:
    """Return the key of the split, int64 (rows,): each row's time, or group as a number; None if rows are apart.

    Folds, the choice of the newest rows and the verdict's units use it. A date is its microseconds since 1970, a time
    that is no date its rank. Rows with an equal key column of `hash` or `random` are a group.
    """
    if split.column is None or split.by in _WITHOUT_COLUMN:
        return None
    column = table.column(split.column)
    if split.by != "time":
        groups = _ranks(hash_values(column, split.column, split.seed))
        return groups if split.by == "group" or groups.max(initial=-1) < len(groups) - 1 else None
    values = times(column, split.column)
    return _ranks(values) if is_number(column.type) else values


def independent_units(split: Split, key: np.ndarray | None, identities: Hashes) -> Units:
    """Return the units of independence of rows: their groups or times, stretches of rows in order, or single rows.

    Rows that are all of one time are a time series of their own, in the order of the rows.

    Args:
        split: The split block of the spec.
        key: Of the rows, from `split_key`.
        identities: Of the rows.
    """
    if split.by == "position" or (split.by == "time" and (key is None or key.min() == key.max())):
        return Units(scratch.counted(len(identities)), in_order=True)
    return Units(identities if key is None else key, in_order=split.by == "time")


@dataclass(frozen=True)
class SplitRows:
    """The rows that a model is made of, in the order of their table.

    Attributes:
        codes: The split of each row, int8 (rows,).
        positions: Where each row stands in the raw table, int64 (rows,).
        identities: Their hashes (rows,).
        key: From `split_key`, or the units of equal rows; None: rows are apart.
        weights: How much each counts, float64 (rows,); None: all alike.
        units: Which rows are not independent.
    """

    codes: np.ndarray
    positions: np.ndarray
    identities: Hashes
    key: np.ndarray | None
    weights: np.ndarray | None
    units: Units

    @classmethod
    def of(
        cls,
        table: pa.Table,
        data: Data,
        codes: np.ndarray,
        positions: np.ndarray,
        hashes: Hashes,
        equal: np.ndarray | None = None,
    ) -> SplitRows:
        """Return the rows of a table, whose identities are `hashes`; `equal` counts the units of equal rows (rows,)."""
        key = split_key(table, data.split) if equal is None else equal
        weights = None if data.weight is None else row_weights(table.column(data.weight), data.weight, codes)
        return cls(codes, positions, hashes, key, weights, independent_units(data.split, key, hashes))

    @property
    def train(self) -> np.ndarray:
        """True for training rows (rows,)."""
        return scratch.filled(len(self.codes), np.bool_, lambda part: self.codes[part] == TRAIN)

    @property
    def train_weights(self) -> np.ndarray | None:
        """The weights of the training rows; None: all count alike."""
        return None if self.weights is None else scratch.chosen(self.weights, self.train)

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each split."""
        return {name: int((self.codes == code).sum()) for code, name in enumerate(SPLITS)}


def _ranks(values: np.ndarray) -> np.ndarray:
    return scratch.ranks(values, scratch.unique(values))


def times(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return a time column as sortable numbers: int64 microseconds for dates and ISO text, numbers unchanged.

    Raises:
        DataError: A text is no ISO date, or the column has times of day alone.
    """
    kind = column.type
    if pa.types.is_time(kind):
        raise DataError(
            f"data.split.column {name!r}: got times of day, which do not order the rows of several days: name a column "
            "of dates, or of dates with times"
        )
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = parsed_times(column, f"data.split.column {name!r}")
    elif pa.types.is_date(kind):
        column = scratch.by_parts(column, lambda part: part.cast(pa.timestamp("us")))
    if pa.types.is_timestamp(column.type):
        zone = column.type.tz
        column = scratch.by_parts(column, lambda part: part.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()))
    return scratch.numbers(column)


def by_position(sizes: np.ndarray, split: Split) -> np.ndarray:
    """Return the split of each row, int8 (rows,): contiguous, in row order, by shares of their `sizes`."""
    until = np.cumsum(sizes) / max(1, int(sizes.sum()))
    first_validation = _nearest_cut(until, 1.0 - split.validation - split.test)
    first_test = max(_nearest_cut(until, 1.0 - split.test), first_validation)
    codes = np.full(len(sizes), TRAIN, dtype=np.int8)
    codes[first_validation:] = VALIDATION
    codes[first_test:] = TEST
    return codes


def check_not_empty(codes: np.ndarray, split: Split) -> None:
    """Refuse a split without rows.

    Raises:
        DataError: Names the empty split.
    """
    counts = np.bincount(codes[codes >= 0], minlength=3)
    for code, name in enumerate(SPLITS):
        if not counts[code]:
            counts_of_splits = ", ".join(f"{split_name} {counts[i]}" for i, split_name in enumerate(SPLITS))
            how = "another way" if split.column is None else "by another column"
            raise DataError(
                f"data.split: by {split.by} leaves {name} without rows ({counts_of_splits}), expected some in each: "
                f"give more data, larger shares, or split {how}"
            )


def _check_column(table: pa.Table, split: Split) -> None:
    num_missing = int(missing(table.column(split.column)).sum())
    if num_missing:
        raise DataError(
            f"data.split.column {split.column!r}: {num_missing} of {table.num_rows} rows have no value, expected one "
            "in each: fill or drop them in a source function, or split by another column"
        )


def is_by_content(data: Data) -> bool:
    """Return True if the split identifies a row by all of its values."""
    by_row = data.split.by == "stratified" or (data.split.by == "random" and data.split.column is None)
    return by_row and data.id is None


def _row_hashes(table: pa.Table, split: Split, identities: Hashes | None) -> Hashes:
    if split.column is not None and split.by not in _WITHOUT_COLUMN:
        return hash_values(table.column(split.column), split.column, split.seed)
    return keyed(row_identities(table) if identities is None else identities, split.seed)


def _by_threshold(points: np.ndarray, split: Split) -> np.ndarray:
    cuts = (split.test, split.test + split.validation)
    return scratch.filled(len(points), np.int8, lambda part: TEST - np.searchsorted(cuts, points[part], side="right"))


def _stratified(column: pa.ChunkedArray, target: str, split: Split, hashes: Hashes) -> np.ndarray:
    """Assign splits within each class: the row of rank k among n rows gets the point (k + the class's offset) / n.

    Source: systematic sampling; rows are ordered by their hashes, so that the order of the file has no effect.
    """
    values = scratch.first_values(column, _MAX_STRATA)
    if len(values) > _MAX_STRATA:
        raise DataError(
            f"data.split: got {len(values)} different values of {target!r} to stratify by, expected at "
            f"most {_MAX_STRATA} classes: split by random, or by time, group or hash"
        )
    classes = scratch.filled(
        len(column),
        np.int32,
        lambda part: pc.index_in(column.slice(part.start, part.stop - part.start), value_set=values).to_numpy(),
    )
    sizes = np.zeros(len(values), dtype=np.int64)
    for part in scratch.parts(len(classes)):
        sizes += np.bincount(classes[part], minlength=len(values))
    offsets = unit_interval(hash_values(pa.chunked_array([values]), target, split.seed))
    ranks = _ranks_in_class(classes, hashes, len(values))

    def points_of(part: slice) -> np.ndarray:
        return np.asarray((ranks[part] + offsets[classes[part]]) / sizes[classes[part]])

    codes = _by_threshold(scratch.filled(len(classes), np.float64, points_of), split)
    # A class of which no row would train could not be learnt: its last row trains, so the only row of a class does.
    has_training, last = np.zeros(len(values), dtype=bool), np.zeros(len(values), dtype=np.int64)
    for part in scratch.parts(len(classes)):
        has_training[classes[part][codes[part] == TRAIN]] = True
        np.maximum.at(last, classes[part], ranks[part])
    for part in scratch.parts(len(classes)):
        codes[part][~has_training[classes[part]] & (ranks[part] == last[classes[part]])] = TRAIN
    num_single = int((sizes == 1).sum())
    if num_single > len(codes) / 2:
        raise DataError(
            f"data.split: {num_single:,} of {len(codes):,} rows have a value of {target!r} that no other row has, "
            "expected classes to stratify by: is it an id or free text? Name another target"
        )
    return codes


def _ranks_in_class(classes: np.ndarray, hashes: Hashes, num_classes: int) -> np.ndarray:
    """Return for each row the rank of its hash within its class, int64 (rows,).

    Equal hashes, those of equal rows, share the rank of the first.
    """
    ranks, before = scratch.empty(len(classes), np.int64), np.zeros(num_classes, dtype=np.int64)
    for by_hash, starts in equal_runs(hashes):
        in_rows = np.argsort(by_hash)
        of_class = np.empty(len(by_hash), classes.dtype)
        of_class[in_rows] = classes[by_hash[in_rows]]
        places = np.argsort(of_class, kind="stable")  # by class, in each by hash
        order, numbers = by_hash[places], np.arange(len(places))
        of_class = of_class[places]
        is_first = np.diff(of_class, prepend=-1) != 0
        begins = np.maximum.accumulate(np.where(is_first, numbers, 0))
        is_new = is_first | (np.diff(starts[places], prepend=-1) != 0)
        firsts = np.maximum.accumulate(np.where(is_new, numbers, 0))
        scratch.put(ranks, order, before[of_class] + firsts - begins)
        before += np.bincount(of_class, minlength=num_classes)
    return ranks


def _by_time(values: np.ndarray, split: Split) -> np.ndarray:
    """Cut between distinct times, so that rows with the same time are in the same split."""
    ordered = scratch.filled(len(values), values.dtype, lambda part: values[part])
    ordered.sort()
    return _by_order(ordered, split, values)


def _by_order(ordered: np.ndarray, split: Split, values: np.ndarray | None = None) -> np.ndarray:
    """Return the split of rows with some values (rows,), from those in their order; default: they are in order."""
    first_validation = _nearest_end(ordered, 1.0 - split.validation - split.test)
    first_test = max(_nearest_end(ordered, 1.0 - split.test), first_validation)
    cuts = [ordered[end] for end in (first_validation, first_test) if end < len(ordered)]
    values = ordered if values is None else values
    return scratch.filled(len(values), np.int8, lambda part: np.searchsorted(cuts, values[part], side="right"))


def _nearest_end(ordered: np.ndarray, share: float) -> int:
    """Return where the moment ends, of values in their order, until which the share of the rows is nearest to `share`.

    Of two as near the first counts.
    """
    row = min(max(int(share * len(ordered)), 1), len(ordered)) - 1
    start = int(np.searchsorted(ordered, ordered[row]))
    ends = [start, int(np.searchsorted(ordered, ordered[row], side="right"))]
    if ends[1] < len(ordered):
        ends.append(int(np.searchsorted(ordered, ordered[ends[1]], side="right")))
    return min((end for end in ends if end), key=lambda end: abs(end / len(ordered) - share))


def _nearest_cut(until: np.ndarray, share: float) -> int:
    """Return how many rows lie before the cut whose share of their sizes is nearest to `share`."""
    return int(np.abs(until - share).argmin()) + 1
