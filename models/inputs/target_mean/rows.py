"""Means of the target as inputs: by the categories that have many levels.

The means of a training row come from rows of other folds (cross-fitting), for else they would hold its own target. A
mean is drawn to that of all rows, as if so many rows more of the level had that: one row says little of a level.

Source: Micci-Barreca, "A preprocessing scheme for high-cardinality categorical attributes", 2001.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models import scratch
from models.inputs.categorical.rows import level_codes, most_frequent
from models.inputs.raw_rows import KindRows, LearntInputs, PreparedColumns, RawRows, Tensors
from models.inputs.record import InputRecord, LearntFiles
from models.inputs.target_mean.record import TargetMeanInput
from models.project_spec.reserved_columns import FITTED_PREFIX

MANY_LEVELS = 100
"""Training rows have more levels than this; of fewer, an index for each says as much."""
MOST_LEVELS = 10_000
"""Most levels with a mean of their own: they stand in the graph."""
MOST_VALUES = 10
"""With more classes or targets there are no means: an input for each would be too many."""
PRIOR_ROWS = 10.0
"""Rows with the mean of all that are added to those of a level."""
NUM_FOLDS = 5
CONSTANT = 1e-9
"""What differs by less than this, in standard deviations, is rounding."""

Numbers: TypeAlias = NDArray[np.float64]


class _Training(NamedTuple):
    """What is learnt from: targets (row, value), their weights (row,) and the folds (row,)."""

    targets: Numbers
    weights: Numbers
    folds: NDArray[np.int64]


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[TargetMeanInput]:
    """Return the means for the categories that were learnt before; they have no columns of their own."""
    del names
    texts = {name: learnt.prepared[name] for name in learnt.columns.of("categorical") if name in learnt.prepared}
    levels = {
        name: most_frequent(scratch.chosen_values(column, rows.train), MOST_LEVELS) for name, column in texts.items()
    }
    levels = {name: level_names for name, level_names in levels.items() if len(level_names) > MANY_LEVELS}
    folds = rows.units.at(rows.train).folds(NUM_FOLDS) if levels else np.zeros(1, np.int64)
    if not folds.any():  # no category of many levels, or all rows are of one group: no fold says anything of another
        return []
    targets = target_matrix(rows.answers(), has_classes=rows.has_classes)
    if targets.shape[1] > MOST_VALUES:
        return []
    weights = scratch.filled(len(targets), np.float64, lambda part: 1.0) if rows.weights is None else rows.weights
    training = _Training(targets, weights, folds)
    parts = []
    for name, level_names in levels.items():
        codes = level_codes(texts[name], level_names)
        tables, values = cross_fitted(codes, rows.train, training)
        # Constant where all rows of a level are of one fold, as those of a group: nothing is known of new ones.
        for number in np.flatnonzero(np.ptp(scratch.chosen(values, rows.train), axis=0) > CONSTANT):
            part = TargetMeanInput(
                name=_name_of(rows, int(number), targets.shape[1], name),
                of=name,
                levels=level_names,
                values=tables[:, number].tolist(),
            )
            parts.append(part)
            learnt.add(FITTED_PREFIX + part.name, pa.array(scratch.computed(lambda rows: rows, values[:, number])))
    return parts


def target_matrix(answers: np.ndarray, *, has_classes: bool) -> Numbers:
    """Return what is averaged, float64 (row, value): of classes a column of 0 and 1 each, of two the second alone."""
    if not has_classes:
        return np.asarray(answers, np.float64).reshape(len(answers), -1)
    num_classes = int(answers.max(initial=0)) + 1
    shares = np.eye(num_classes)[:, 1:] if num_classes == 2 else np.eye(num_classes)
    return scratch.filled((len(answers), shares.shape[1]), np.float64, lambda part: shares[answers[part]])


def cross_fitted(codes: NDArray[np.int32], train: np.ndarray, training: _Training) -> tuple[Numbers, Numbers]:
    """Return the means by level (1 + level, value), and those of all rows (row, value), both standardised.

    The mean and deviation of the training rows' own ones standardise them.

    Args:
        codes: The number of each row's level (row,).
        train: True for training rows (row,).
        training: Targets, weights and folds of the training rows.
    """
    training_codes, num = scratch.chosen(codes, train), int(codes.max(initial=0)) + 1
    # The mean of all rows has no fold of its own: it would tell the fold of a row, and so its target.
    prior = training.weights @ training.targets / max(training.weights.sum(), 1e-300)
    of_fold = np.stack([_means(training_codes, training, prior, num, fold) for fold in range(training.folds.max() + 1)])
    of_training = scratch.filled(
        training.targets.shape, np.float64, lambda part: of_fold[training.folds[part], training_codes[part]]
    )
    tables = _means(training_codes, training, prior, num)
    shift, scale = of_training.mean(axis=0), of_training.std(axis=0)
    scale = np.where(scale > 1e-12 * np.abs(shift).clip(1e-300), scale, 1.0)
    tables, end = (tables - shift) / scale, 0
    values = scratch.filled((len(codes), tables.shape[1]), np.float64, lambda part: tables[codes[part]])
    for part in scratch.parts(len(codes)):
        start, end = end, end + int(np.count_nonzero(train[part]))
        values[part][train[part]] = (of_training[start:end] - shift) / scale
    return tables, values


def _means(
    codes: NDArray[np.int32], training: _Training, prior: Numbers, num: int, left_out: int | None = None
) -> Numbers:
    """Return the mean of the targets by level, (num, value), drawn to `prior` (value,), which level 0 has.

    The rows of the fold `left_out` do not count.
    """
    counts, sums = np.zeros((num, 1)), np.zeros((num, training.targets.shape[1]))
    for part in scratch.parts(len(codes)):
        weights = training.weights[part]
        weights = weights if left_out is None else np.where(training.folds[part] == left_out, 0.0, weights)
        np.add.at(counts[:, 0], codes[part], weights)
        for number, column in enumerate(training.targets[part].T):
            np.add.at(sums[:, number], codes[part], weights * column)
    means: Numbers = (sums + PRIOR_ROWS * prior) / (counts + PRIOR_ROWS)
    means[0] = prior
    return means


def _name_of(rows: RawRows, number: int, num_values: int, column: str) -> str:
    targets = rows.data.targets
    if num_values == 1:
        return f"{targets[0]} by {column}"
    return f"{targets[number]} by {column}" if len(targets) == num_values else f"class {number + 1} by {column}"


def _values(column: pa.ChunkedArray, part: TargetMeanInput) -> pa.ChunkedArray:
    del part
    return column


def _mean_columns(
    parts: Sequence[TargetMeanInput], inputs: Sequence[InputRecord], prepared: PreparedColumns, files: LearntFiles
) -> PreparedColumns:
    del inputs, files
    return {
        FITTED_PREFIX + part.name: pa.chunked_array(
            [np.array(part.values)[level_codes(pa.chunked_array(prepared[part.of]), part.levels)]]
        )
        for part in parts
    }


def _encode(rows: pa.Table, parts: Sequence[TargetMeanInput], files: LearntFiles) -> Tensors:
    del files
    means = [rows.column(FITTED_PREFIX + part.name).to_numpy() for part in parts]
    return {"numeric": np.stack(means, axis=1).astype(np.float32)}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
    made=_mean_columns,
)
