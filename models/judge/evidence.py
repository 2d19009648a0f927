"""The evidence of a verdict: predictions of every model on the same frozen test examples, and costs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from models.errors import DataError
from models.judge.verdict import Parity, ServingCost
from models.kinds.task import Task
from models.metrics.classification import Decision, at_threshold
from models.metrics.metrics import Array, Metric, check_examples
from models.metrics.outputs import Output

_MISSING = frozenset({"None", "nan", "NaT", "<NA>"})
"""How Python and pandas print missing values; in a user's own text they are ordinary words."""


@dataclass(frozen=True)
class Evidence:
    """Arrays with one entry for each test example, in the same order for every model.

    Targets and predictions have the form for metrics (`models/metrics/metrics.py`).
    """

    task: Task
    target: Array
    challenger: Array
    champion: Array | None = None
    best: Array | None = None
    """Predictions of the best champion so far, where that is not the champion."""
    best_counts: Array | None = None
    """Which examples count in the comparison with it, bool (example,): those it does not know; None: all."""
    best_id: str | None = None
    baseline: Array | None = None
    baseline_name: str = "baseline"
    references: Mapping[str, float] = field(default_factory=dict)
    """Other values to compare the metric with, by name; they decide nothing."""
    weights: Array | None = None
    """Weights (example,) of the examples in every metric but a user's own; None for all ones."""
    slices: Mapping[str, Array] = field(default_factory=dict)
    """Raw values (example,) of each slice column."""
    thresholds: Mapping[str, Decision] = field(default_factory=dict)
    """How each model decides for classes or labels; 0.5 where there is none."""
    clusters: Array | None = None
    """Cluster numbers (example,) from 0 on, if examples depend on each other: groups, or blocks of a series."""
    challenger_id: str | None = None
    champion_id: str | None = None
    challenger_cost: ServingCost = field(default_factory=ServingCost)
    champion_cost: ServingCost | None = None
    parity: Parity | None = None
    outputs: Sequence[Output] = ()
    """The outputs of a row, if there are several; targets and predictions are then (example, output)."""
    positive: str = ""
    """The positive one of two classes, by name."""
    class_names: Sequence[str] = ()
    """The classes by their number, where a row has one of several."""
    class_rows: Sequence[int] = ()
    """Their training rows."""
    copies: float = 0.0
    """Share of the test rows that equal a training or validation row, where the columns identify rows."""
    single_predictors: Mapping[str, float] = field(default_factory=dict)
    """Columns that alone predict the target almost perfectly, with their score (models/validation)."""

    @property
    def models(self) -> dict[str, Array]:
        """Predictions of each existing model; the challenger first."""
        all_of_them = {"challenger": self.challenger, "champion": self.champion, "baseline": self.baseline}
        return {name: prediction for name, prediction in all_of_them.items() if prediction is not None}

    def models_for(self, metric: Metric) -> dict[str, Array]:
        """Return the predictions as a metric sees them: one of decisions sees what each model decides."""
        if not metric.decides:
            return self.models
        return {
            name: at_threshold(prediction, self.thresholds.get(name, 0.5)) for name, prediction in self.models.items()
        }

    @property
    def decided(self) -> Array:
        """The challenger's predictions, moved so that 0.5, or the highest, decides as it does."""
        return at_threshold(self.challenger, self.thresholds.get("challenger", 0.5))

    @property
    def weighs(self) -> Array:
        """Which examples weigh anything, bool (example,): the others are no examples, and in no unit."""
        if self.weights is None or not self.weights.any():
            return np.ones(len(self.target), bool)
        return self.weights > 0

    @property
    def weighing(self) -> Evidence:
        """The evidence of the examples that weigh anything; whatever is measured, drawn or shown is of them."""
        return self if self.weights is None else self.only(self.weighs)

    def only(self, examples: Array) -> Evidence:
        """Return the evidence of some examples: `examples` is true for those that count, bool (example,)."""

        def part(values: Array | None) -> Array | None:
            return None if values is None else values[examples]

        return replace(
            self,
            target=self.target[examples],
            challenger=self.challenger[examples],
            champion=part(self.champion),
            baseline=part(self.baseline),
            best=part(self.best),
            best_counts=part(self.best_counts),
            clusters=part(self.clusters),
            weights=part(self.weights),
            slices={column: values[examples] for column, values in self.slices.items()},
        )

    def check(self) -> None:
        """Refuse arrays that cannot be compared.

        Raises:
            DataError: Lengths or shapes differ, or a prediction is not finite; names the model.
        """
        for name, prediction in self.models.items():
            try:
                check_examples(self.target, prediction)
            except DataError as error:
                raise DataError(f"{name}: {error}") from error
            if prediction.shape != self.challenger.shape:
                raise DataError(
                    f"{name}: predictions have shape {prediction.shape}, the challenger's "
                    f"{self.challenger.shape}: predict the same test examples with the same classes"
                )
        for column, values in self.slices.items():
            if len(values) != len(self.target):
                raise DataError(
                    f"slice {column}: got {len(values)} values, expected {len(self.target)}, one an example"
                )

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each array: of its dtype, shape and values."""
        arrays = {"target": self.target, **self.models}
        if self.best is not None:
            arrays["best"] = self.best
        if self.best_counts is not None:
            arrays["best counts"] = self.best_counts
        if self.weights is not None:
            arrays["weights"] = self.weights
        if self.clusters is not None:
            arrays["clusters"] = self.clusters
        arrays |= {f"slice {column}": as_text(values) for column, values in self.slices.items()}
        return {name: _digest(array) for name, array in arrays.items()}


def as_text(values: Array) -> Array:
    """Return slice values as text: whole floats lose their `.0`, missing ones become `missing`."""
    return np.array([_text(value) for value in np.asarray(values, dtype=object)], dtype=np.str_)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value or "missing"
    text = str(value)
    if text in _MISSING:
        return "missing"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else text


def _digest(array: Array) -> str:
    if array.dtype.kind == "U":
        return _sha256(f"text{array.shape}", "\0".join(array.tolist()).encode())
    return _sha256(f"{array.dtype.str}{array.shape}", np.ascontiguousarray(array).tobytes())


def _sha256(kind: str, content: bytes) -> str:
    return hashlib.sha256(kind.encode() + content).hexdigest()
