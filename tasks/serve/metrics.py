"""What the server tells Prometheus. Over many workers prometheus_client adds them up from files that outlive a worker.

Labels are bounded: versions and classes past the first few of a model are counted as `other`, and no label comes from a
request.
"""

from __future__ import annotations

import os
from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from models.export.names import LABEL, PREDICTION, PROBABILITIES
from models.serving.served import Answer, Served
from tasks.serve.metric_files import SHARED
from tasks.serve.passage import Passage

if TYPE_CHECKING:
    from tasks.serve.engine import Engine
    from tasks.serve.shelf import Shelf

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0)
CHANCES = tuple(tenth / 10 for tenth in range(1, 11))
DEVIATIONS = (-4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
MOST_VERSIONS, MOST_CLASSES = 50, 30
ROWS_LOOKED_AT = 16
"""Of a request, for the histogram of predictions: more would cost more than the answer."""
MOST_KEPT = 256
"""Requests that are counted together; what `look` has not counted yet dies with the process."""
OTHER = "other"
Outputs = Mapping[str, np.ndarray]


class Metrics:
    """The metrics of one process; call `look` now and then for what is no event."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._bounds = _Bounds()
        self._children: dict[tuple[object, ...], Any] = {}
        self._passed: list[tuple[str, str, int, float]] = []
        self._answers: list[tuple[Served, Outputs, int]] = []
        self._generations: dict[str, int] = {}
        self._roles: dict[str, set[tuple[str, str]]] = {}
        model = ["model", "version"]
        self._requests = self._counter("requests", "Requests by the status that was answered", [*model, "status"])
        self._rows = self._counter("rows", "Rows that were answered", model)
        self._unlogged = self._counter("unlogged_rows", "Rows answered while the log could not be written", ["model"])
        self._seconds = self._histogram("request_seconds", "From the head of a request to its answer", model, SECONDS)
        self._classes = self._counter("predictions", "Rows by the class that was predicted", [*model, "label"])
        self._chances = self._histogram(
            "probability", "Probability of the positive class, or of the predicted one", model, CHANCES
        )
        self._deviations = self._histogram(
            "standard_prediction", "Predictions, as deviations from the training target's mean", model, DEVIATIONS
        )
        self._waiting = self._gauge("queue_waiting", "Calls that wait for the engine", [], "livesum")
        self._is_ready = self._gauge("ready", "1 where a version of the model is loaded", ["model"], "livemin")
        self._role = self._gauge("version", "1 for each version that is loaded", [*model, "role"], "livemax")
        self._refused = self._gauge("refused_versions", "Versions that were not let in", ["model"], "livemax")
        self._returned = self._gauge("returned_versions", "Versions that were taken back", ["model"], "livemax")
        self._swaps = self._counter("swaps", "Changes of what answers, in each worker", ["model"])
        if SHARED not in os.environ:
            ProcessCollector(registry=self._registry)

    def answered(self, served: Served, answer: Answer) -> None:
        """Count the rows of an answer, and what they say."""
        outputs, rows = answer.outputs, answer.num_rows
        if rows > ROWS_LOOKED_AT:  # a copy: a view would keep all of it
            outputs = {name: values[:ROWS_LOOKED_AT].copy() for name, values in outputs.items()}
        self._answers.append((served, outputs, rows))

    def unlogged(self, model: str, count: int) -> None:
        """Count rows that were answered and could not be written down."""
        self._child(self._unlogged, model).inc(count)

    def passed(self, passage: Passage, seconds: float) -> None:
        """Count a request that is over."""
        self._passed.append((passage.model, passage.version, passage.status, seconds))
        if len(self._passed) >= MOST_KEPT:
            self._count()

    def look(self, engine: Engine, shelves: Mapping[str, Shelf]) -> None:
        """Note what is now: the queue, and which versions are loaded."""
        self._count()
        self._waiting.set(engine.waiting)
        for name, shelf in shelves.items():
            self._child(self._is_ready, name).set(shelf.is_ready)
            release = shelf.release
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
        """What Prometheus reads, of all workers."""
        if SHARED not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)

    def _count(self) -> None:
        """Hand on what was kept, many at a time: one by one it costs as much as a small model's call."""
        passed, self._passed = self._passed, []
        for (model, version, status), times in Counted(one[:3] for one in passed).items():
            self._child(self._requests, model, self._bounds.version(model, version), str(status)).inc(times)
        took: dict[tuple[str, str], list[float]] = {}
        for model, version, _, seconds in passed:
            if model:
                took.setdefault((model, self._bounds.version(model, version)), []).append(seconds)
        for labels, seconds_of in took.items():
            _observe(self._child(self._seconds, *labels), np.array(seconds_of), SECONDS)
        answers, self._answers = self._answers, []
        together: dict[Served, list[Outputs]] = {}
        for served, outputs, rows in answers:
            together.setdefault(served, []).append(outputs)
            self._child(self._rows, served.project, self._bounds.version(served.project, served.version)).inc(rows)
        for served, some in together.items():
            self._count_answers(served, some)

    def _count_answers(self, served: Served, some: Sequence[Outputs]) -> None:
        labels = served.project, self._bounds.version(served.project, served.version)
        if PREDICTION in some[0]:
            target = served.preparation.target
            values = np.concatenate([outputs[PREDICTION] for outputs in some]).astype(np.float64)
            _observe(self._child(self._deviations, *labels), (values - target.shift) / target.scale, DEVIATIONS)
        elif LABEL in some[0]:
            for label, times in Counted(str(label) for outputs in some for label in outputs[LABEL].tolist()).items():
                self._child(self._classes, *labels, self._bounds.label(served.project, label)).inc(times)
            chances = np.concatenate([outputs[PROBABILITIES] for outputs in some]).astype(np.float64)
            is_binary = served.preparation.task == "binary"
            _observe(self._child(self._chances, *labels), chances[:, 1] if is_binary else chances.max(axis=1), CHANCES)

    def _tell_roles(self, name: str, roles: Mapping[str, str | None]) -> None:
        now = {(self._bounds.version(name, version), role) for role, version in roles.items() if version}
        known = self._roles.setdefault(name, set())
        known |= now
        for version, role in known:
            self._child(self._role, name, version, role).set((version, role) in now)

    def _child(self, metric: Any, *labels: str) -> Any:
        """The metric of these labels; `labels()` looks it up at ten times the cost."""
        key = (metric, *labels)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = metric.labels(*labels)
        return found

    def _counter(self, name: str, told: str, labels: list[str]) -> Counter:
        return Counter(f"loopline_serve_{name}", told, labels, registry=self._registry)

    def _histogram(self, name: str, told: str, labels: list[str], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"loopline_serve_{name}", told, labels, buckets=buckets, registry=self._registry)

    def _gauge(self, name: str, told: str, labels: list[str], mode: Any) -> Gauge:
        return Gauge(f"loopline_serve_{name}", told, labels, registry=self._registry, multiprocess_mode=mode)


class _Bounds:
    """The first few values of a label by model; the rest are `other`."""

    def __init__(self) -> None:
        self._versions: dict[str, set[str]] = {}
        self._labels: dict[str, set[str]] = {}

    def version(self, model: str, version: str) -> str:
        if not model:
            return ""
        return _bounded(self._versions.setdefault(model, set()), version, MOST_VERSIONS)

    def label(self, model: str, label: str) -> str:
        return _bounded(self._labels.setdefault(model, set()), label, MOST_CLASSES)


def _bounded(known: set[str], value: str, most: int) -> str:
    if value in known:
        return value
    if len(known) >= most:
        return OTHER
    known.add(value)
    return value


def _observe(histogram: Any, values: np.ndarray, edges: Sequence[float]) -> None:
    """Many values at once, which the library's own `observe` takes one by one."""
    counts = np.bincount(np.searchsorted(edges, values.ravel()), minlength=len(edges) + 1)
    for bucket, count in zip(histogram._buckets, counts.tolist(), strict=True):
        if count:
            bucket.inc(count)
    histogram._sum.inc(float(values.sum()))
