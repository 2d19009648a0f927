"""Prometheus metrics. With several workers, prometheus_client adds them up from files that outlive a worker.

Labels are bounded: versions and classes past the first few of a model are counted as `other`, and no label comes from a
request.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.inference.loaded_model import LoadedModel, Prediction
from models.inference.portable import LABEL, LABELS, PREDICTION, PROBABILITIES
from models.kinds.task import PerTask
from tasks.serve.metric_files import SHARED
from tasks.serve.request_context import RequestContext

if TYPE_CHECKING:
    from tasks.release.loaded_versions import LoadedVersions
    from tasks.serve.batcher import DynamicBatcher

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0)
CHANCES = tuple(tenth / 10 for tenth in range(1, 11))
DEVIATIONS = (-4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
MOST_VERSIONS, MOST_CLASSES = 50, 30
MOST_KEPT = 256
"""Requests and rows that are buffered and then counted together; a process that dies loses its buffer."""
OTHER = "other"
Outputs = Mapping[str, np.ndarray]
"""A model's outputs by their names, the rows first."""


class Metrics:
    """The metrics of one process; call `look` regularly to update the gauges."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._bounds = _LabelLimit()
        self._children: dict[tuple[object, ...], Any] = {}
        self._passed: dict[tuple[str, str, int], list[float]] = {}
        self._num_pending = 0
        self._version_counts: dict[LoadedModel, _VersionCounts] = {}
        self._generations: dict[str, int] = {}
        self._roles: dict[str, set[tuple[str, str]]] = {}
        model = ["model", "version"]
        self._requests = self._counter("requests", "Requests by the status that was answered", [*model, "status"])
        self._rows = self._counter("rows", "Rows that were answered", model)
        self._unlogged = self._counter("unlogged_rows", "Rows answered while the log could not be written", ["model"])
        self._seconds = self._histogram("request_seconds", "From the head of a request to its answer", model, SECONDS)
        self._classes = self._counter(
            "predictions", "Rows by the class that was predicted, or by each label that was given", [*model, "label"]
        )
        self._chances = self._histogram(
            "probability", "Probability of the positive class, of the predicted one, or of each label", model, CHANCES
        )
        self._deviations = self._histogram(
            "standard_prediction", "Predictions, as deviations from the training target's mean", model, DEVIATIONS
        )
        self._waiting_bytes = self._gauge(
            "waiting_bytes", "Bytes of answers and labels that wait for the compactor", ["model"], "livemax"
        )
        self._waiting = self._gauge("queue_waiting", "Calls that wait for the engine", [], "livesum")
        self._is_ready = self._gauge("ready", "1 where a version of the model is loaded", ["model"], "livemin")
        self._role = self._gauge("version", "1 for each version that is loaded", [*model, "role"], "livemax")
        self._refused = self._gauge("refused_versions", "Versions that were not let in", ["model"], "livemax")
        self._returned = self._gauge("returned_versions", "Versions that were taken back", ["model"], "livemax")
        self._swaps = self._counter("swaps", "Changes of what answers, in each worker", ["model"])
        if SHARED not in os.environ:
            ProcessCollector(registry=self._registry)

    def answered(self, served: LoadedModel, answer: Prediction) -> None:
        """Buffer the rows and values of a prediction, to be counted when a request ends."""
        counts = self._version_counts.get(served)
        if counts is None:
            counts = self._version_counts[served] = _VersionCounts()
        counts.add(answer, served.preparation)
        self._num_pending += answer.num_rows

    def unlogged(self, model: str, count: int) -> None:
        """Count rows that were answered but could not be logged."""
        self._child(self._unlogged, model).inc(count)

    def waiting_bytes(self, model: str, count: int) -> None:
        """Set how many bytes of a model's log wait for the compactor."""
        self._child(self._waiting_bytes, model).set(count)

    def passed(self, context: RequestContext, seconds: float) -> None:
        """Buffer a finished request; count the buffer once it is full."""
        self._passed.setdefault((context.model, context.version, context.status), []).append(seconds)
        self._num_pending += 1
        if self._num_pending >= MOST_KEPT:
            self._count()

    def look(self, engine: DynamicBatcher, projects: Mapping[str, LoadedVersions]) -> None:
        """Count the buffer, and set the gauges of the queue and the loaded versions."""
        self._count()
        self._waiting.set(engine.waiting)
        for name, loaded in projects.items():
            self._child(self._is_ready, name).set(loaded.is_ready)
            release = loaded.release
            if release is None:
                continue
            before = self._generations.get(name)
            self._generations[name] = release.generation
            swaps = self._child(self._swaps, name)
            if before is not None:
                swaps.inc(max(0, release.generation - before))
            self._child(self._refused, name).set(len(release.refused))
            self._child(self._returned, name).set(len(release.returned))
            canary = release.canary.version if release.canary else None
            self._tell_roles(name, {"stable": release.stable, "previous": release.previous, "canary": canary})

    def text(self) -> bytes:
        """Return the metrics of all workers in the text format of Prometheus."""
        if SHARED not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        _AllWorkers(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)

    def _count(self) -> None:
        """Count the buffered values together: one by one this costs as much as a small model's call."""
        passed, self._passed, self._num_pending = self._passed, {}, 0
        for (model, version, status), seconds in passed.items():
            labels = model, self._bounds.version(model, version)
            self._child(self._requests, *labels, str(status)).inc(len(seconds))
            if model:
                _observe(self._child(self._seconds, *labels), np.array(seconds), SECONDS)
        by_version, self._version_counts = self._version_counts, {}
        for served, counts in by_version.items():
            self._count_version(served, counts)

    def _count_version(self, served: LoadedModel, counts: _VersionCounts) -> None:
        name, preparation = served.project, served.preparation
        labels = name, self._bounds.version(name, served.version)
        self._child(self._rows, *labels).inc(counts.rows)
        for label, times in Tally(counts.labels).items():
            self._child(self._classes, *labels, self._bounds.label(name, str(label))).inc(times)
        if counts.numbers:
            COUNTED[preparation.task].observe(self, labels, np.array(counts.numbers), preparation.target)

    def observe_chances(self, labels: tuple[str, str], chances: np.ndarray, target: TargetEncoding) -> None:
        """Count probabilities; `labels` are model and version."""
        del target
        _observe(self._child(self._chances, *labels), chances, CHANCES)

    def observe_deviations(self, labels: tuple[str, str], numbers: np.ndarray, target: TargetEncoding) -> None:
        """Count numbers (row,) or (row, output) as deviations from the target; `labels` are model and version."""
        _observe(self._child(self._deviations, *labels), target.encode(numbers), DEVIATIONS)

    def _tell_roles(self, name: str, roles: Mapping[str, str | None]) -> None:
        now = {(self._bounds.version(name, version), role) for role, version in roles.items() if version}
        roles_before = self._roles.setdefault(name, set())
        roles_before |= now
        for version, role in roles_before:
            self._child(self._role, name, version, role).set((version, role) in now)

    def _child(self, metric: Any, *labels: str) -> Any:
        """Return the metric of these labels from a cache; `labels()` costs ten times as much."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def _counter(self, name: str, help_text: str, labels: list[str]) -> Counter:
        return Counter(f"loopline_serve_{name}", help_text, labels, registry=self._registry)

    def _histogram(self, name: str, help_text: str, labels: list[str], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"loopline_serve_{name}", help_text, labels, buckets=buckets, registry=self._registry)

    def _gauge(self, name: str, help_text: str, labels: list[str], mode: Any) -> Gauge:
        return Gauge(f"loopline_serve_{name}", help_text, labels, registry=self._registry, multiprocess_mode=mode)


@dataclass(slots=True)
class _VersionCounts:
    """Buffered predictions of a version, as plain values: keeping arrays costs ten times as much.

    `numbers`: predicted values, of several outputs a list for each row; for classes, the probability of the positive
    or of the predicted class; for labels, that of each.
    """

    rows: int = 0
    labels: list[Any] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)

    def add(self, answer: Prediction, preparation: Preparation) -> None:
        """Add a prediction."""
        counted = COUNTED[preparation.task]
        self.rows += answer.num_rows
        self.labels += counted.labels(answer.outputs, preparation.target)
        self.numbers += counted.numbers(answer.outputs)


def _no_labels(outputs: Outputs, target: TargetEncoding) -> list[Any]:
    del outputs, target
    return []


def _classes(outputs: Outputs, target: TargetEncoding) -> list[Any]:
    del target
    labels: list[Any] = outputs[LABEL].tolist()
    return labels


def _given_labels(outputs: Outputs, target: TargetEncoding) -> list[Any]:
    return [target.outputs[place].name for place in outputs[LABELS].nonzero()[1].tolist()]


def _no_numbers(outputs: Outputs) -> list[Any]:
    del outputs
    return []


def _values(outputs: Outputs) -> list[Any]:
    values: list[Any] = outputs[PREDICTION].tolist()
    return values


def _positive_chances(outputs: Outputs) -> list[float]:
    chances: list[float] = outputs[PROBABILITIES][:, 1].tolist()
    return chances


def _highest_chances(outputs: Outputs) -> list[float]:
    chances = outputs[PROBABILITIES]
    if len(chances) > MOST_KEPT:  # row by row, 100,000 rows blocked the event loop for 0.1 s
        highest: list[float] = chances.max(axis=1).tolist()
        return highest
    return [max(chances_of_row) for chances_of_row in chances.tolist()]


def _label_chances(outputs: Outputs) -> list[Any]:
    chances: list[Any] = outputs[PROBABILITIES].tolist()
    return chances


class Counted(NamedTuple):
    """What is counted of a task's predictions: the labels that are given, and numbers, which `observe` counts."""

    labels: Callable[[Outputs, TargetEncoding], list[Any]]
    numbers: Callable[[Outputs], list[Any]]
    observe: Callable[[Metrics, tuple[str, str], np.ndarray, TargetEncoding], None]


_NUMBERS = Counted(_no_labels, _values, Metrics.observe_deviations)
COUNTED: PerTask[Counted] = {
    "binary": Counted(_classes, _positive_chances, Metrics.observe_chances),
    "multiclass": Counted(_classes, _highest_chances, Metrics.observe_chances),
    "multilabel": Counted(_given_labels, _label_chances, Metrics.observe_chances),
    "regression": _NUMBERS,
    "quantile": _NUMBERS,
    "language": Counted(_no_labels, _no_numbers, Metrics.observe_chances),
    "ranking": _NUMBERS,
}


class _LabelLimit:
    """Keeps the first few values of a label for each model; later values become `other`."""

    def __init__(self) -> None:
        self._versions: dict[str, set[str]] = {}
        self._labels: dict[str, set[str]] = {}

    def version(self, model: str, version: str) -> str:
        if not model:
            return ""
        return _bounded(self._versions.setdefault(model, set()), version, MOST_VERSIONS)

    def label(self, model: str, label: str) -> str:
        return _bounded(self._labels.setdefault(model, set()), label, MOST_CLASSES)


def _bounded(seen: set[str], value: str, limit: int) -> str:
    if value in seen:
        return value
    if len(seen) >= limit:
        return OTHER
    seen.add(value)
    return value


class _AllWorkers(MultiProcessCollector):
    """Leaves out a file that a worker has just made: prometheus_client fails on one that is still empty."""

    def collect(self) -> Any:
        """Return the metrics of all files together."""
        files = [str(path) for path in Path(os.environ[SHARED]).glob("*.db") if _is_begun(path)]
        return self.merge(files, accumulate=True)  # type: ignore[no-untyped-call]


def _is_begun(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:  # of a worker that has just ended
        return False


def _observe(histogram: Any, values: np.ndarray, edges: Sequence[float]) -> None:
    """Observe many values at once; the library's own `observe` takes one value."""
    counts = np.bincount(np.searchsorted(edges, values.ravel()), minlength=len(edges) + 1)
    for bucket, count in zip(histogram._buckets, counts.tolist(), strict=True):
        if count:
            bucket.inc(count)
    histogram._sum.inc(float(values.sum()))
