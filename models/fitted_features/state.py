"""What the user's `fit` learnt of the training rows, as plain data: tables of numbers by category, and arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.errors import UserCodeError
from models.fitted_features.lookup import Lookup
from models.project_spec import references
from models.sources.whole_numbers import as_frame

AsText = Callable[[pa.ChunkedArray], pa.ChunkedArray]
MOST_KEYS = 100_000
"""Most values of a lookup: it is stored with the model and in its graph."""
MOST_NUMBERS = 10_000_000
"""Most numbers of an array, 80 MB: a graph is a message of protobuf, which holds 2 GB at most."""


@dataclass(frozen=True)
class FeatureCode:
    """The user's pair: `data.features.fit` and `data.features.transform`, relative to the folder of the spec."""

    fit: str
    transform: str | None
    base: Path


@dataclass(frozen=True)
class InputColumns:
    """The columns of some rows that features are made of: numbers with NaN for missing, texts with null."""

    numbers: Mapping[str, np.ndarray]
    texts: Mapping[str, pa.ChunkedArray]

    @property
    def names(self) -> set[str]:
        """The names of all columns."""
        return {*self.numbers, *self.texts}


@dataclass(frozen=True, eq=False)
class FittedState:
    """The lookups, and the other arrays of numbers, by their names."""

    lookups: list[Lookup]
    arrays: dict[str, np.ndarray]

    def equals(self, other_state: FittedState) -> bool:
        """Return whether both hold the same names and numbers, up to what the order of a sum on threads changes."""
        mine, other_numbers = self._numbers(), other_state._numbers()
        return mine.keys() == other_numbers.keys() and all(
            array.shape == other_numbers[name].shape and np.allclose(array, other_numbers[name], rtol=1e-9, atol=1e-15)
            for name, array in mine.items()
        )

    def _numbers(self) -> dict[tuple[str, ...], np.ndarray]:
        tables = {(lookup.name, lookup.column, *lookup.keys): np.array(lookup.values) for lookup in self.lookups}
        return {**tables, **{(name,): array for name, array in self.arrays.items()}}

    def columns(self, inputs: InputColumns) -> dict[str, np.ndarray]:
        """Return what the user's `transform` reads: the numbers, and what the lookups find, float64 (row,) each."""
        numbers = {lookup.name: lookup.find(inputs.texts[lookup.column]) for lookup in self.lookups}
        return {**inputs.numbers, **numbers}


def fit_state(code: FeatureCode, rows: pa.Table, inputs: InputColumns, as_text: AsText) -> FittedState:
    """Call the user's `fit` on rows as a data frame, and return what it learnt.

    Args:
        code: The user's pair.
        rows: The raw rows to learn from.
        inputs: The input columns that features may read; names of features must differ from theirs.
        as_text: How a column becomes the texts that categories are compared as.

    Raises:
        UserCodeError: The function raised, or returned something else than named numbers.
    """
    where = f"data.features.fit {code.fit}"
    returned = references.call(references.resolve(code.fit, code.base), code.fit, as_frame(rows))
    if not isinstance(returned, Mapping) or not returned:
        raise UserCodeError(
            f"{where}: got {type(returned).__name__}, expected a dict with a pandas Series, a number or an array of "
            "each "
            "name: end it with `return {'name': ...}`"
        )
    lookups, arrays = [], {}
    for name, value in returned.items():
        if not isinstance(name, str) or not name or name in inputs.names or name in rows.column_names:
            raise UserCodeError(f"{where}: got the name {name!r}, expected a text that is no column: rename it")
        if hasattr(value, "index") and hasattr(value, "to_numpy"):
            lookups.append(_lookup(name, value, inputs.texts, where, as_text))
            continue
        arrays[name] = _array(name, value, where)
    if arrays and code.transform is None:
        raise UserCodeError(
            f"{where}: {next(iter(arrays))!r} is no pandas Series by category, so it needs a function that reads it: "
            "name one in data.features.transform"
        )
    return FittedState(lookups, arrays)


def _lookup(name: str, series: Any, texts: Mapping[str, pa.ChunkedArray], where: str, as_text: AsText) -> Lookup:
    if series.ndim != 1:
        raise UserCodeError(
            f"{where}: {name!r} is a {type(series).__name__}, expected a pandas Series: take one column, "
            "`.mean()['column']`"
        )
    column = series.index.name
    if column not in texts:
        raise UserCodeError(
            f"{where}: the index of {name!r} is named {column!r}, expected one of the categorical inputs "
            f"({', '.join(sorted(texts)) or 'there are none'}): group by one of them, which data.features.kinds makes "
            "categorical"
        )
    values = _array(name, series.to_numpy(), where, takes_missing=True)
    try:
        keys = as_text(pa.chunked_array([pa.Array.from_pandas(series.index)]))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise UserCodeError(
            f"{where}: the index of {name!r} is no column of categories ({error}): correct it"
        ) from error
    is_known = ~np.isnan(values) & keys.is_valid().to_numpy()
    index_values = keys.filter(pa.array(is_known)).to_pylist()
    if len(index_values) != len(set(index_values)):
        raise UserCodeError(f"{where}: the index of {name!r} holds a value of {column!r} twice: group by it")
    if len(index_values) > MOST_KEYS:
        raise UserCodeError(
            f"{where}: {name!r} has {len(index_values):,} values, expected at most {MOST_KEYS:,}: leave rare ones out"
        )
    if index_values and not pc.any(pc.is_in(texts[column], pa.array(index_values, pa.string()))).as_py():
        raise UserCodeError(
            f"{where}: no row has a value of the index of {name!r} ({', '.join(map(repr, index_values[:3]))}), "
            "expected "
            f"values of {column!r} such as {', '.join(map(repr, texts[column].drop_null()[:3].to_pylist()))}: group by "
            "the column as it is"
        )
    return Lookup(name=name, column=column, keys=index_values, values=values[is_known].tolist())


def _array(name: str, value: Any, where: str, *, takes_missing: bool = False) -> np.ndarray:
    no_numbers = UserCodeError(
        f"{where}: {name!r} is a {type(value).__name__} that holds no numbers, expected a pandas Series, a number "
        "or an array of numbers: convert it"
    )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        raise no_numbers from None
    if array.dtype.kind in "mM":
        raise UserCodeError(
            f"{where}: {name!r} holds times, expected numbers: make seconds of them, as `transform` gets columns of "
            "times in seconds since 1970"
        )
    if array.size > MOST_NUMBERS:
        raise UserCodeError(
            f"{where}: {name!r} has {array.size:,} numbers, expected at most {MOST_NUMBERS:,}: return what sums them up"
        )
    if array.dtype.kind not in "biufO":
        raise no_numbers
    is_whole = array.dtype.kind in "iu" and array.dtype != np.uint64 and not takes_missing
    try:
        numbers = array.astype(np.int64 if is_whole else np.float64)
    except (TypeError, ValueError):
        raise no_numbers from None
    if np.isinf(numbers).any() or (np.isnan(numbers).any() and not takes_missing):
        raise UserCodeError(f"{where}: {name!r} holds a number that is not finite: leave it out, or replace it")
    return numbers
