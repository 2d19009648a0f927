"""Builds smaller variants of a model, measures them on validation rows, and picks the one to serve."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from models.data.feeds import TEXT_BATCH, feed_at, spread_positions, targets
from models.data.preparation import Preparation
from models.data.weights import weights_of
from models.errors import DataError, LooplineError, TrainingError
from models.export.layers import FLOAT, Layers
from models.export.smaller_types import dynamic_int8
from models.export.variants import VariantMeasurement, allowed_loss, are_same, choose, loss_of, refusal
from models.files import write_bytes
from models.inference.names import FP32, UNCHANGED_FILE
from models.inference.portable import MODEL_FILE
from models.inference.predict import Feed, predict, session
from models.metrics.metrics import Array, Metric, measure
from models.project_spec.serve import Serve

MOST_ROWS = {"table": 10_000, "image": 2_000, "series": 5_000, "text": TEXT_BATCH}
"""Most validation rows that are measured, spread evenly over the split."""
PASS_ROWS = 2_048
LEAST_WEIGHTS = 64
"""A net without a larger constant than this has no weights worth making smaller."""
ROUNDS, FEWEST_ROUNDS, MOST_SECONDS = 200, 20, 1.0
MOST_REASON = 200
"""Most characters of a reason."""
VARIANTS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {"int8_dynamic": dynamic_int8}


@dataclass(frozen=True)
class BenchmarkRows:
    """The rows that variants are measured on."""

    preparation: Preparation
    validation: Sequence[Feed]
    target: Array
    weight: Array | None

    @classmethod
    def of(cls, prepared: Path, preparation: Preparation) -> BenchmarkRows:
        """Return rows of the validation split, spread evenly over it."""
        target = targets(prepared, "validation")
        positions = spread_positions(len(target), MOST_ROWS[preparation.kind])
        some = feed_at(prepared, "validation", preparation, positions)
        pieces = [_cut(some, start, start + PASS_ROWS) for start in range(0, len(positions), PASS_ROWS)]
        weights = weights_of(prepared, "validation")
        weights_of_rows = None if weights is None else weights[positions]
        return cls(preparation, pieces, target[positions], weights_of_rows)

    def predictions(self, path: Path) -> Array:
        """Return a model file's predictions of the validation rows."""
        return predict(path, self.validation, self.preparation)


def optimise(folder: Path, prepared: Path, metric: Metric, serve: Serve, seed: int) -> list[VariantMeasurement]:
    """Make and measure the variants that the spec names; afterwards `model.onnx` is the variant to serve.

    If that is not fp32, the exported file stays as `model.fp32.onnx`.

    Args:
        folder: The folder with `model.onnx` and `preparation.json` as `export` wrote them.
        prepared: The prepared rows.
        metric: The metric of the goal.
        serve: The spec's serve block, with the allowed loss.
        seed: Seed of the resamples.

    Returns:
        One row for each variant, fp32 first; none for trees, which have no weights to make smaller, or if the spec
        names no variants.

    Cost: a fraction of a second for nets of tables, some seconds for a decoder of 3 MB.
    """
    exported = folder / MODEL_FILE
    model = onnx.load(exported)
    if not serve.variants or not _has_weights(model):
        return []
    rows = BenchmarkRows.of(prepared, Preparation.load(folder))
    place = folder / "variants"
    shutil.rmtree(place, ignore_errors=True)
    before = rows.predictions(exported)
    allowed = allowed_loss(metric, rows.target, before, serve.max_metric_loss, seed, rows.weight)
    bench = _VariantBuilder(model, place, rows, metric, serve, seed, before, allowed)
    try:
        table = [bench.unchanged(exported)]
    except DataError as error:  # e.g. only one class in the validation rows: no comparison is possible
        return [VariantMeasurement(name=FP32, size_bytes=exported.stat().st_size, refused=str(error), served=True)]
    table += [bench.variant(name) for name in serve.variants]
    table = choose(bench.timed(table))
    best = next(variant.name for variant in table if variant.served)
    if best != FP32:
        exported.replace(folder / UNCHANGED_FILE)
        bench.files[best].replace(exported)
    shutil.rmtree(place, ignore_errors=True)
    return table


@dataclass
class _VariantBuilder:
    """Makes variants one by one and measures everything except their latency."""

    model: onnx.ModelProto
    place: Path
    rows: BenchmarkRows
    metric: Metric
    serve: Serve
    seed: int
    before: Array
    allowed: float
    files: dict[str, Path] = field(default_factory=dict)
    same: dict[str, bool] = field(default_factory=dict)

    def unchanged(self, path: Path) -> VariantMeasurement:
        """Measure the exported file itself."""
        value = measure(self.metric, self.rows.target, self.before, self.rows.weight)
        self.files[FP32], self.same[FP32] = path, True
        size = path.stat().st_size
        return VariantMeasurement(name=FP32, size_bytes=size, value=value, loss=0.0, most_lost=0.0)

    def variant(self, name: str) -> VariantMeasurement:
        """Make and measure a variant; if it cannot be made or does not run, `refused` has the reason."""
        try:
            content = _made(VARIANTS[name], self.model).SerializeToString(deterministic=True)
            path = self.place / f"{name}.onnx"
            self.place.mkdir(exist_ok=True)
            write_bytes(path, content)
            after = self.rows.predictions(path)
            target, weight = self.rows.target, self.rows.weight
            loss, most_lost = loss_of(self.metric, target, self.before, after, self.seed, weight)
            value = measure(self.metric, target, after, weight)
        except LooplineError as error:
            return VariantMeasurement(name=name, refused=str(error).splitlines()[0][:MOST_REASON])
        self.files[name], self.same[name] = path, are_same(self.before, after)
        return VariantMeasurement(name=name, size_bytes=len(content), value=value, loss=loss, most_lost=most_lost)

    def timed(self, table: list[VariantMeasurement]) -> list[VariantMeasurement]:
        """Return the table with latencies, and with the reasons of variants whose latency or loss is over the limit."""
        took = latencies(self.files, _cut(self.rows.validation[0], 0, 1))
        variants = []
        for measured in table:
            timing = {}
            if measured.name in took:
                ratios = took[measured.name] / took[FP32]
                timing = {"latency_ms": float(np.median(took[measured.name])), "times_fp32": at_least(ratios)}
            variant = measured.model_copy(update=timing)
            same = self.same.get(measured.name, False)
            reason = refusal(variant, same, self.allowed, self.serve.max_latency_ms)
            variants.append(variant.model_copy(update={"refused": reason}))
        return variants


def at_least(ratios: Array) -> float:
    """Return the lower end of the one-sided 95 % interval of the median of some ratios (round,).

    Source: the sign test; Conover (1999), Practical Nonparametric Statistics, 3.2.
    """
    from scipy.stats import binom

    return float(np.sort(ratios)[max(0, int(binom.ppf(0.05, len(ratios), 0.5)) - 1)])


def latencies(files: Mapping[str, Path], example: Feed) -> dict[str, Array]:
    """Return the milliseconds of the calls of each file (round,), on one thread.

    The files are called in turn, so that other load on the machine affects all of them alike.
    """
    running = {name: session(path) for name, path in files.items()}
    took: dict[str, list[float]] = {name: [] for name in files}
    feed = dict(example)
    began = time.perf_counter()
    for num_rounds in range(ROUNDS + 1):
        for name, each in running.items():
            start = time.perf_counter()
            each.run(None, feed)
            took[name].append(time.perf_counter() - start)
        if num_rounds >= FEWEST_ROUNDS and time.perf_counter() - began > MOST_SECONDS:
            break
    return {name: np.array(seconds[1:]) * 1e3 for name, seconds in took.items()}


def _has_weights(model: onnx.ModelProto) -> bool:
    constants = Layers(model).constants.values()
    return any(constant.data_type == FLOAT and int(np.prod(constant.dims)) >= LEAST_WEIGHTS for constant in constants)


def _cut(feed: Feed, start: int, stop: int) -> Feed:
    return {name: values[start:stop] for name, values in feed.items()}


def _made(make: Callable[[onnx.ModelProto], onnx.ModelProto], model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return make(model)
    except LooplineError:
        raise
    except Exception as error:  # the tools raise errors of many kinds, and no variant may stop the loop
        raise TrainingError(f"cannot be made: {type(error).__name__}: {error}") from error
