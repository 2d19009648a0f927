"""The trivial baseline and the independent units of examples that a verdict needs from the held-out rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from models import scratch
from models.data import feeds, text
from models.data.preparation import ROWS_FILE, SPLITS, Preparation
from models.data.prepared_rows import column_of, units_of
from models.data.weights import weights_of
from models.data.window_reference import seasonal_lag
from models.errors import DataError
from models.identity.hashing import MOST_KNOWN, Hashes, least
from models.judge.baseline import Baseline, naive_forecast, trivial_baseline
from models.judge.evidence import Evidence
from models.judge.gates import LEAST_CLUSTERS
from models.kinds.data_kind import PerDataKind
from models.kinds.task import TASKS, PerTask
from models.metrics.bootstrap import block_length, time_blocks
from models.metrics.metrics import Array, measure, metrics_for, quantiles_of
from models.metrics.regression import sample_quantiles
from models.project_spec.blocks import Spec, TimeUnit
from models.project_spec.reserved_columns import IDENTITY_COLUMN, KEY_COLUMN, SPLIT_COLUMN
from models.sources.code_points import code_points
from models.sources.read import read_table

LEAST_BLOCKS = 10
"""Units of time are joined into no fewer blocks than this."""
MOST_STRETCHES = 100
"""Most stretches of examples whose times are no dates.

Source: Schmeiser (1982), Operations Research 30(3): more than about 30 batches hardly make a test more powerful."""
_CALENDAR: dict[TimeUnit, str] = {"hour": "h", "day": "D", "week": "W", "month": "M"}
_MONDAY = np.timedelta64(3, "D")
"""From the Monday of its week to 1 January 1970, a Thursday, on which numpy's weeks begin."""


def baseline_of(prepared: Path, preparation: Preparation, target: Array, metric: str) -> Baseline:
    """Return the trivial baseline: of a series the better of the last value and that of a season ago, on the test rows.

    Of all others `trivial_baseline`; `target` holds the true values of the test examples.
    """
    return _BASELINES[preparation.kind](prepared, preparation, target, metric)


def _baseline_of_text(prepared: Path, preparation: Preparation, target: Array, metric: str) -> Baseline:
    del metric
    training = code_points(text.text_of(prepared, "train", preparation.required_characters))
    return trivial_baseline(preparation.task, training, target)


def _baseline_of_series(prepared: Path, preparation: Preparation, target: Array, metric: str) -> Baseline:
    levels = quantiles_of(preparation.outputs, metric)
    shares = np.resize(levels or [0.5], target.shape[-1] if target.ndim > 1 else 1)

    def loss(forecast: Baseline) -> float:
        error = (target - forecast.prediction).reshape(len(target), -1)
        return float(np.maximum(shares * error, (shares - 1) * error).mean())

    return min(naive_forecasts(prepared, preparation, metric), key=loss)


def _baseline_of_rows(prepared: Path, preparation: Preparation, target: Array, metric: str) -> Baseline:
    num_classes = len(preparation.target.names)
    training, outputs = feeds.targets(prepared, "train"), preparation.target.outputs
    weights = weights_of(prepared, "train")
    return trivial_baseline(preparation.task, training, target, num_classes, metric, outputs, weights)


_BASELINES: PerDataKind[Callable[[Path, Preparation, Array, str], Baseline]] = {
    "table": _baseline_of_rows,
    "image": _baseline_of_rows,
    "series": _baseline_of_series,
    "text": _baseline_of_text,
}
_MEASURED: PerDataKind[Sequence[str]] = {"table": SPLITS[1:], "image": SPLITS[1:], "series": SPLITS[1:], "text": ()}
"""The splits on which a metric may be undefined; every text has bits."""


def check_measurable(prepared: Path, preparation: Preparation, metric: str | None) -> None:
    """Refuse validation or test rows on which a ready metric is undefined, such as ROC AUC on rows of one class.

    Args:
        prepared: The prepared rows.
        preparation: Their preparation.
        metric: The name in `goal.metric`; None: the task's default. A metric that is not ready is not checked.

    Raises:
        DataError: Names the split, the metric and the cure.
    """
    name, outputs = metric or TASKS[preparation.task].metric, preparation.target.outputs
    ready = next((candidate for candidate in metrics_for(preparation.task, outputs) if candidate.name == name), None)
    if ready is None:
        return
    for split in _MEASURED[preparation.kind]:
        target, weights = feeds.targets(prepared, split), weights_of(prepared, split)
        num_classes = len(preparation.target.names)
        constant = trivial_baseline(preparation.task, target, target, num_classes, name, outputs, weights)
        try:
            measure(ready, target, constant.prediction, weights)
        except DataError as error:
            raise DataError(f"data.split: {split} rows: {error}, or give data.split.{split} a larger share") from error


def naive_forecasts(prepared: Path, preparation: Preparation, metric: str = "") -> list[Baseline]:
    """Return the naive forecasts of the test rows of series: the last value, and that of a season ago if there is one.

    Where no season lies before a row, its seasonal forecast is the last value. A quantile is the forecast plus that
    quantile of its errors on the training rows.
    """
    window, levels = preparation.required_window, quantiles_of(preparation.outputs, metric)
    middle = float(feeds.targets(prepared, "train").mean())
    test = feeds.series_targets(prepared)
    train = feeds.series_targets(prepared, "train") if levels else None
    by_output = []
    for ahead in window.horizons:
        forecasts = _naive_of_horizon(test, ahead, preparation, middle)
        if train is not None:
            past = _naive_of_horizon(train, ahead, preparation, middle)
            true = train.values[train.rows - (window.last_horizon - ahead)]
            pairs = zip(forecasts, itertools.chain(past, itertools.repeat(past[-1])), strict=False)
            forecasts = [
                Baseline(
                    forecast.name, forecast.prediction[:, None] + sample_quantiles(true - before.prediction, levels)
                )
                for forecast, before in pairs
            ]
        by_output.append(forecasts)
    if len(by_output) == 1:
        form = (-1, len(preparation.outputs)) if preparation.outputs else (-1,)
        return [Baseline(forecast.name, forecast.prediction.reshape(form)) for forecast in by_output[0]]
    names = ("the last value", "the value of a season ago")
    num = max(len(forecasts) for forecasts in by_output)
    return [
        Baseline(
            name, np.column_stack([forecasts[min(index, len(forecasts) - 1)].prediction for forecasts in by_output])
        )
        for index, name in enumerate(names[:num])
    ]


def _naive_of_horizon(
    targets: feeds.SeriesTargets, ahead: int, preparation: Preparation, middle: float
) -> list[Baseline]:
    """Return the last value, and the seasonal one if it is another, as forecasts of one horizon."""
    values, steps, last_rows = targets
    rows = last_rows - (preparation.required_window.last_horizon - ahead)
    season = preparation.series.season if preparation.series else None
    last = naive_forecast(values, steps, rows, ahead, middle)
    lag = seasonal_lag(season, ahead) if season else ahead
    is_old = steps[rows] >= lag
    if lag == ahead or not is_old.any():
        return [last]
    seasonal = naive_forecast(values, steps, rows[is_old], lag, middle)
    prediction = last.prediction.copy()
    prediction[is_old] = seasonal.prediction
    return [last, Baseline(seasonal.name, prediction)]


def known_rows(prepared: Path, preparation: Preparation) -> Hashes:
    """Return the identities of the rows that a model was trained or selected on; they are stored with its version.

    uint64 (row,), sorted; for more than a million rows the smallest, as a sample. Empty for a text. Of series: the rows
    of the targets, at all horizons.
    """
    sides = (_TARGET_ROWS[preparation.kind](prepared, side, preparation).ravel() for side in ("train", "validation"))
    return least((hashes[part] for hashes in sides for part in scratch.parts(len(hashes))), MOST_KNOWN)


def example_rows(prepared: Path, preparation: Preparation) -> Hashes:
    """Return the identity of each test example's row, or of its first target's, uint64 (example,); empty for a text."""
    return _TARGET_ROWS[preparation.kind](prepared, "test", preparation)[:, 0]


def is_known(prepared: Path, hashes: Hashes) -> np.ndarray:
    """Return which test examples have a row that is, or may be, known to another model, bool (example,).

    If some have and the record of the other model is a sample, also the rows beyond its last one may be known.
    """
    preparation = Preparation.load(prepared)
    identities = _TARGET_ROWS[preparation.kind](prepared, "test", preparation)
    mask = np.asarray(np.isin(identities, hashes).any(axis=1))
    if len(hashes) == MOST_KNOWN and mask.any():
        np.logical_or(mask, (identities > hashes[-1]).any(axis=1), out=mask)
    return mask


def _rows_of_targets(prepared: Path, split: str, preparation: Preparation) -> Hashes:
    del preparation
    return column_of(prepared, split, IDENTITY_COLUMN)[:, None]


def _steps_of_targets(prepared: Path, split: str, preparation: Preparation) -> Hashes:
    window = preparation.required_window
    rows = read_table(prepared / ROWS_FILE, [IDENTITY_COLUMN, SPLIT_COLUMN])
    last = np.flatnonzero(rows.column(SPLIT_COLUMN).to_numpy() == SPLITS.index(split))
    targets = (last - window.last_horizon)[:, None] + window.horizons
    identities: Hashes = rows.column(IDENTITY_COLUMN).to_numpy()[targets]
    return identities


def _no_rows(prepared: Path, split: str, preparation: Preparation) -> Hashes:
    del prepared, split, preparation
    return np.zeros((0, 1), dtype=np.uint64)


_TARGET_ROWS: PerDataKind[Callable[[Path, str, Preparation], Hashes]] = {
    "table": _rows_of_targets,
    "image": _rows_of_targets,
    "series": _steps_of_targets,
    "text": _no_rows,
}
"""The identities of the rows that hold the targets of each example of a split, (example, row); none of a text."""


def with_clusters(evidence: Evidence, prepared: Path, preparation: Preparation, spec: Spec) -> Evidence:
    """Return the evidence with the clusters of test examples that depend on each other; the judge resamples clusters.

    A split by group, or by a key that rows share: its groups. By time: calendar units. Series: their steps, of all
    series together, since what moves one moves others. By position or a text: stretches. Units of time are joined into
    blocks if the differences between the models' losses depend on their neighbours.
    """
    return replace(evidence, clusters=_CLUSTERS[preparation.kind](evidence, prepared, preparation, spec))


def _clusters_of_series(evidence: Evidence, prepared: Path, preparation: Preparation, spec: Spec) -> Array:
    del spec
    units = np.unique(column_of(prepared, "test", KEY_COLUMN), return_inverse=True)[1]
    least = max(preparation.required_window.last_horizon, round((int(units.max()) + 1) ** (1 / 3)))
    return joined(evidence, units, least)


def _clusters_of_text(evidence: Evidence, prepared: Path, preparation: Preparation, spec: Spec) -> Array:
    del prepared, preparation, spec
    num = len(evidence.target)
    return joined(evidence, np.arange(num), round(num ** (1 / 3)))


def _clusters_of_rows(evidence: Evidence, prepared: Path, preparation: Preparation, spec: Spec) -> Array | None:
    del preparation
    by = spec.data.split.by
    if by in ("time", "position"):
        times = column_of(prepared, "test", KEY_COLUMN) if by == "time" else np.arange(len(evidence.target))
        return joined(evidence, time_units(times, spec.judge.unit), 1)
    groups = units_of(prepared, "test")
    return None if groups is None else np.unique(groups, return_inverse=True)[1]


_CLUSTERS: PerDataKind[Callable[[Evidence, Path, Preparation, Spec], Array | None]] = {
    "table": _clusters_of_rows,
    "image": _clusters_of_rows,
    "series": _clusters_of_series,
    "text": _clusters_of_text,
}


def joined(evidence: Evidence, units: Array, min_length: int) -> Array:
    """Return the clusters (example,) of units in the order of time: blocks of `min_length` units, or as many as depend.

    The length comes from the differences in loss between the challenger and the other models.
    """
    models = [*evidence.models.values(), *([] if evidence.best is None else [evidence.best])]
    ours, *losses_of_others = (EXAMPLE_LOSSES[evidence.task](evidence.target, outputs) for outputs in models)
    weights = np.ones(len(units)) if evidence.weights is None else evidence.weights
    sizes = np.bincount(units, weights)
    counted = np.where(sizes > 0, sizes, 1.0)
    losses = (
        np.bincount(units, weights * (ours - loss_of_other)) / counted
        for loss_of_other in losses_of_others or [np.zeros(len(ours))]
    )
    length = max(block_length(difference[sizes > 0]) for difference in losses)
    clusters: Array = time_blocks(len(sizes), max(min_length, min(len(sizes) // LEAST_BLOCKS, length)))[units]
    return clusters


def time_units(times: Array, unit: TimeUnit | None = None) -> Array:
    """Return the number of each example's calendar unit, from 0 on in the order of time (example,).

    Without a unit: days, or hours or minutes where there are too few days for a verdict. Times that are no dates give
    stretches of about as many examples each.

    Args:
        times: Microseconds since 1970, or ranks of times that are no dates (example,).
        unit: The spec's `judge.unit`.
    """
    stamps = times.astype("datetime64[us]")
    for code in [_CALENDAR[unit]] if unit else ["D", "h", "m"]:
        moved = stamps + _MONDAY if code == "W" else stamps
        units: Array = np.unique(moved.astype(f"datetime64[{code}]"), return_inverse=True)[1]
        if unit or units.max() + 1 >= LEAST_CLUSTERS:
            return units
    moments = np.unique(times, return_inverse=True)[1]
    num_moments = int(moments.max()) + 1
    return np.asarray(moments * min(num_moments, MOST_STRETCHES) // num_moments)


def _error(target: Array, prediction: Array) -> Array:
    return np.asarray(np.abs(target - prediction))


def _missing_probability(target: Array, prediction: Array) -> Array:
    return np.asarray(1 - prediction[np.arange(len(target)), target])


def _mean_error(target: Array, prediction: Array) -> Array:
    """Return the mean of the errors of several outputs, each relative to the mean size of its values' deviations."""
    spread = np.abs(target - np.median(target, axis=0)).mean(axis=0)
    return np.asarray((np.abs(target - prediction) / np.where(spread > 0, spread, 1.0)).mean(axis=1))


def _error_of_numbers(target: Array, prediction: Array) -> Array:
    return _mean_error(target, prediction) if target.ndim > 1 else _error(target, prediction)


def _mean_bits(target: Array, prediction: Array) -> Array:
    del target
    return np.asarray(prediction.mean(axis=1))


def _error_of_grade(target: Array, prediction: Array) -> Array:
    return _error(target[:, 0], prediction)


EXAMPLE_LOSSES: PerTask[Callable[[Array, Array], Array]] = {
    "binary": _error,
    "multiclass": _missing_probability,
    "multilabel": _mean_error,
    "regression": _error_of_numbers,
    "quantile": _mean_error,
    "language": _mean_bits,
    "ranking": _error_of_grade,
}
"""A loss of each example (example,) from target and prediction, whatever the metric."""
