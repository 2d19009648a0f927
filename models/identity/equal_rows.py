"""Equal rows: copies of a row would be learnt by heart from the training rows and found again in the test rows.

Rows are equal if they agree in every input column of the raw table and in the target; ids, weights and columns that are
no input do not tell them apart. Where the columns identify rows, equal rows are a unit: one split and one fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.identity.equal_share import EqualRows
from models.identity.hashing import Hashes, equal_runs, hash_rows, hash_values
from models.project_spec.blocks import Data, Spec

MOST_OF_ONE = 0.05
"""Rows of which more than this share are equal are a common value, such as that of a sensor which is off: no copies."""
FEW = 2
"""So many equal rows are copies in the smallest table."""
_MANY_VALUES = 1 << 16
"""Different values in the first part of a column from which on those of all rows are counted by their hashes."""

EqualRowsRule = Literal["together", "apart"]
"""The values of `data.split.equal_rows`."""


def with_equal_rows(spec: Spec, rule: EqualRowsRule | None) -> Spec:
    """Return the spec with a rule for equal rows in its split; as it is without a rule."""
    if rule is None:
        return spec
    split = spec.data.split.model_copy(update={"equal_rows": rule})
    return spec.model_copy(update={"data": spec.data.model_copy(update={"split": split})})


def compared_columns(table: pa.Table, data: Data, inputs: Sequence[str]) -> list[str]:
    """Return the raw columns in which equal rows agree: the inputs, the picture and the targets."""
    named = {*inputs, *data.targets, data.image and data.image.column}
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    return [name for name in plain if name in named]


def equal_groups(table: pa.Table, columns: list[str]) -> np.ndarray:
    """Return the number of each row's group of equal rows, int64 (rows,); groups are numbered by their first rows.

    Cost: a hash of each column, and a sort.
    """
    groups = scratch.empty(table.num_rows, np.int64)  # at first the row with which each begins
    for order, starts in equal_runs(hash_rows(table, columns)):
        scratch.put(groups, order, order[starts])
    num_groups = 0
    for part in scratch.parts(len(groups)):
        first = groups[part].copy()
        is_first = first == np.arange(part.start, part.stop)
        groups[part] = num_groups + np.cumsum(is_first, dtype=np.int64) - 1
        num_groups += int(is_first.sum())
        groups[part.start + np.flatnonzero(~is_first)] = groups[first[~is_first]]
    return groups


def identify_rows(table: pa.Table, columns: list[str]) -> bool:
    """Return whether rows that agree in all columns are copies, and no coincidence.

    They are if the columns have at least n^2 combinations of values for n rows: then less than one pair of rows agrees
    by chance. It takes the columns as independent and their values as equally frequent.

    Source: the birthday problem, Feller (1968), An Introduction to Probability Theory, II.3.
    """
    bits_needed, combinations = 2 * float(np.log(max(1, table.num_rows))), 0.0
    for name in columns:
        combinations += float(np.log(max(1, _num_values(table.column(name), name))))
        if combinations >= bits_needed:
            return True
    return False


def _num_values(column: pa.ChunkedArray, name: str) -> int:
    """Return how many different values a column has, missing ones as one; of hashes, if there are many."""
    first = column.slice(0, scratch.PART)
    if len(first) == len(column) or pc.count_distinct(first).as_py() < _MANY_VALUES:
        return int(pc.count_distinct(column, "all").as_py())
    return len(scratch.unique(hash_values(column, name)))


class EqualUnits(NamedTuple):
    """The equal rows of a table before its split.

    Attributes:
        groups: The number of the group of equal rows, by the row's position in the raw table, int64 (raw row,).
        units: The unit that the split does not divide, likewise; None: each row is one.
        identified: From `identify_rows`.
    """

    groups: np.ndarray
    units: np.ndarray | None
    identified: bool

    @classmethod
    def of(cls, table: pa.Table, data: Data, inputs: Sequence[str], positions: np.ndarray, num_raw: int) -> EqualUnits:
        """Find the equal rows of the usable rows, which stand at `positions` of the `num_raw` rows of the raw table."""
        columns = compared_columns(table, data, inputs)
        groups = equal_groups(table, columns)
        has_copies = len(groups) > 0 and int(groups.max()) + 1 < len(groups)
        identified = has_copies and identify_rows(table, columns)
        together = identified and data.deals_rows and data.split.equal_rows != "apart"
        units = units_of_copies(groups) if together else None
        apart = None if units is None else _by_raw_position(units, positions, num_raw)
        return cls(_by_raw_position(groups, positions, num_raw), apart, identified)

    def deciding(self, identities: Hashes, positions: np.ndarray) -> Hashes:
        """Return the hashes that decide the rows' splits, uint64 (rows,): each has that of the first of its unit.

        So a copy that is appended later takes the split of the row that was there before it.
        """
        units = self.units_at(positions)
        if units is None:
            return identities
        first = scratch.filled(int(units.max(initial=-1)) + 1, np.int64, lambda part: len(units))
        for part in scratch.parts(len(units)):
            np.minimum.at(first, units[part], np.arange(part.start, part.stop))
        return scratch.filled(len(units), np.uint64, lambda part: identities[first[units[part]]])

    def units_at(self, positions: np.ndarray) -> np.ndarray | None:
        """Return the units of the rows at some positions, int64 (rows,); None: each row is one."""
        return None if self.units is None else scratch.at(self.units, positions)

    def counted(self, positions: np.ndarray, codes: np.ndarray, test: int) -> EqualRows | None:
        """Return the equal rows of a split table; None if no two rows are equal.

        Args:
            positions: Of the rows in the raw table (rows,).
            codes: The split of each row (rows,).
            test: The code of the test rows.
        """
        groups = scratch.at(self.groups, positions)
        sizes = np.bincount(groups)
        num_equal = int(sizes[sizes > 1].sum())
        if not num_equal:
            return None
        in_training = np.zeros(len(sizes), dtype=bool)
        for part in scratch.parts(len(groups)):
            in_training[groups[part][codes[part] != test]] = True
        return EqualRows(
            num_rows=num_equal,
            identified=self.identified,
            together=self.units is not None,
            num_in_training=sum(
                int(in_training[groups[part][codes[part] == test]].sum()) for part in scratch.parts(len(groups))
            ),
            num_test=int((codes == test).sum()),
        )


def units_of_copies(groups: np.ndarray) -> np.ndarray | None:
    """Return the unit of each row, int64 (rows,): its group of equal rows, or itself; None if all rows are apart.

    The rows of a group with more than `MOST_OF_ONE` of all rows are apart.
    """
    sizes = np.bincount(groups)
    common = sizes > max(FEW, MOST_OF_ONE * len(groups))
    if not ((sizes > 1) & ~common).any():
        return None
    return scratch.filled(
        len(groups),
        np.int64,
        lambda part: np.where(common[groups[part]], len(sizes) + np.arange(part.start, part.stop), groups[part]),
    )


def _by_raw_position(values: np.ndarray, positions: np.ndarray, num_raw: int) -> np.ndarray:
    """Return numbers of the rows at some ascending positions by the position, int64 (raw row,); 0 elsewhere."""
    if len(positions) == num_raw:
        return values
    whole = scratch.filled(num_raw, np.int64, lambda part: 0)
    for part in scratch.parts(len(positions)):
        whole[positions[part]] = values[part]
    return whole
