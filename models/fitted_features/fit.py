"""Features that are fitted on the training rows and applied to all rows.

If `fit` reads the target, the features of a training row come from a fit that did not see the row (cross-fitting):
otherwise a mean of the target by category would hold the row's own target, and the model would trust it too much.

Source: out-of-fold target encoding, Micci-Barreca 2001; stacking, Wolpert 1992.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from models.errors import UserCodeError
from models.fitted_features.lookup import Lookup
from models.fitted_features.state import AsText, FeatureCode, FittedState, InputColumns, fit_state
from models.fitted_features.transform import run_graph, transform_eagerly, transform_graph
from models.folds import Units

NUM_FOLDS = 5


@dataclass(frozen=True)
class FittedFeatures:
    """Lookups, the graph of `transform` (empty: none), and the features of all rows, float64 (row,) each."""

    lookups: list[Lookup]
    graph: bytes
    values: dict[str, np.ndarray]


@dataclass(frozen=True)
class FitRows:
    """The raw rows: which of them train, and the units that a fold never divides."""

    table: pa.Table
    targets: Sequence[str]
    is_training: np.ndarray
    units: Units


def fit_features(code: FeatureCode, rows: FitRows, inputs: InputColumns, as_text: AsText) -> FittedFeatures:
    """Fit the user's features on the training rows, and apply them to all rows.

    Args:
        code: The user's pair.
        rows: The raw rows.
        inputs: Their input columns; the target is none of them.
        as_text: How a column becomes the texts that categories are compared as.

    Raises:
        UserCodeError: The user's functions raised, or returned something unexpected.

    Cost: two fits; six more if `fit` reads the target.
    """
    training = rows.table.filter(pa.array(rows.is_training))
    state = fit_state(code, training, inputs, as_text)
    reads_target = _reads_target(code, training, rows.targets, state, inputs, as_text)
    if reads_target and not fit_state(code, training, inputs, as_text).equals(state):
        raise UserCodeError(
            f"data.features.fit {code.fit}: returns something else each time for the same rows, so nobody can repeat "
            "the model: give its random numbers a fixed seed"
        )
    graph, names = b"", [lookup.name for lookup in state.lookups]
    if code.transform is not None:
        graph, names = transform_graph(code, state, state.columns(inputs))
    taken = {*inputs.names, *rows.table.column_names}
    clashes = [name for name in names if name in taken]
    if clashes:
        raise UserCodeError(
            f"data.features.transform {code.transform}: {clashes[0]!r} is a column of the data already: rename it"
        )
    values = feature_values(state.lookups, graph, names, inputs)
    if reads_target:
        _cross_fit(code, rows, inputs, as_text, values)
    return FittedFeatures(state.lookups, graph, values)


def feature_values(
    lookups: Sequence[Lookup], graph: bytes, names: Sequence[str], inputs: InputColumns
) -> dict[str, np.ndarray]:
    """Return the features of some rows as the served model computes them, float64 (row,) each."""
    columns = FittedState(list(lookups), {}).columns(inputs)
    return run_graph(graph, list(names), columns) if graph else {name: columns[name] for name in names}


def _reads_target(
    code: FeatureCode,
    training: pa.Table,
    targets: Sequence[str],
    state: FittedState,
    inputs: InputColumns,
    as_text: AsText,
) -> bool:
    """Return whether `fit` gives something else, or fails, on the same rows without their target."""
    alone = training.drop_columns([name for name in targets if name in training.column_names])
    try:
        return not fit_state(code, alone, inputs, as_text).equals(state)
    except UserCodeError:
        return True


def _cross_fit(
    code: FeatureCode, rows: FitRows, inputs: InputColumns, as_text: AsText, values: dict[str, np.ndarray]
) -> None:
    """Replace the features of each training row by those of a fit on the other folds.

    Raises:
        UserCodeError: There is one unit only, or the user's functions raised.
    """
    folds = np.full(len(rows.is_training), -1)
    folds[rows.is_training] = rows.units.at(rows.is_training).folds(NUM_FOLDS)
    if folds.max(initial=0) == 0:
        raise UserCodeError(
            f"data.features.fit {code.fit}: reads the target, and all {int(rows.is_training.sum())} training rows are "
            "of one group, so that no features of a row can be learnt from other groups: split by another column"
        )
    for fold in np.unique(folds[rows.is_training]):
        is_left_out = folds == fold
        other_rows = rows.table.filter(pa.array(rows.is_training & ~is_left_out))
        state = fit_state(code, other_rows, inputs, as_text)
        mask = pa.array(is_left_out)
        left_out = InputColumns(
            {name: column[is_left_out] for name, column in inputs.numbers.items()},
            {name: column.filter(mask) for name, column in inputs.texts.items()},
        )
        columns = state.columns(left_out)
        transformed = columns if code.transform is None else transform_eagerly(code, state, columns)
        for name in values:
            if name not in transformed:
                raise UserCodeError(
                    f"data.features.{'transform' if code.transform else 'fit'} {code.transform or code.fit}: makes "
                    f"{name!r} of some rows and not of others: return the same names for any rows"
                )
            values[name][is_left_out] = transformed[name]
