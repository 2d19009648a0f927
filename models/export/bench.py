"""Builds the smaller variant of a model, measures it on validation rows, and picks the file to serve."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from models.data.feeds import TEXT_BATCH, feed_at, targets
from models.data.preparation import Preparation
from models.data.sampled_examples import sampled_examples
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
from models.project_spec.serve import Serve, Variant

MOST_ROWS = {"table": 10_000, "image": 2_000, "series": 5_000, "text": TEXT_BATCH}
"""Most validation rows that are measured, spread evenly over the split."""
PASS_ROWS = 2_048
LEAST_WEIGHTS = 64
"""A net without a larger constant than this has no weights worth making smaller."""
ROUNDS, FEWEST_ROUNDS, MOST_SECONDS = 200, 20, 1.0
MOST_REASON = 200
"""Most characters of a reason."""
INT8: Variant = "int8_dynamic"


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
        limit = MOST_ROWS[preparation.kind]
        positions = sampled_examples(prepared, "validation", target, preparation.task, limit)
        some = feed_at(prepared, "validation", preparation, positions)
        pieces = [_cut(some, start, start + PASS_ROWS) for start in range(0, len(positions), PASS_ROWS)]
        weights = weights_of(prepared, "validation")
        weights_of_rows = None if weights is None else weights[positions]
        return cls(preparation, pieces, target[positions], weights_of_rows)

    def predictions(self, path: Path) -> Array:
        """Return a model file's predictions of the validation rows."""
        return predict(path, self.validation, self.preparation)


def optimise(folder: Path, prepared: Path, metric: Metric, serve: Serve, seed: int) -> list[VariantMeasurement]:
    """Make and measure the variant that the spec names; afterwards `model.onnx` is the file to serve.

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
    before, size = rows.predictions(exported), exported.stat().st_size
    allowed = allowed_loss(metric, rows.target, before, serve.max_metric_loss, seed, rows.weight)
    try:
        value = measure(metric, rows.target, before, rows.weight)
    except DataError as error:  # e.g. only one class in the validation rows: no comparison is possible
        return [VariantMeasurement(name=FP32, size_bytes=size, refused=str(error), served=True)]
    smaller = folder / f"model.{INT8}.onnx"
    fp32 = VariantMeasurement(name=FP32, size_bytes=size, value=value, loss=0.0, most_lost=0.0)
    int8, same = _smaller(smaller, model, rows, metric, before, seed)
    files = {FP32: exported} if int8.refused else {FP32: exported, INT8: smaller}
    took = latencies(files, _cut(rows.validation[0], 0, 1))
    table = []
    for measured, is_same in ((fp32, True), (int8, same)):
        timing = {}
        if measured.name in took:
            ms = took[measured.name]
            timing = {"latency_ms": float(np.median(ms)), "times_fp32": at_least(ms / took[FP32])}
        variant = measured.model_copy(update=timing)
        reason = refusal(variant, is_same, allowed, serve.max_latency_ms)
        table.append(variant.model_copy(update={"refused": reason}))
    table = choose(table)
    if table[1].served:
        exported.replace(folder / UNCHANGED_FILE)
        smaller.replace(exported)
    smaller.unlink(missing_ok=True)
    return table


def _smaller(
    path: Path, model: onnx.ModelProto, rows: BenchmarkRows, metric: Metric, before: Array, seed: int
) -> tuple[VariantMeasurement, bool]:
    """Write and measure the variant, and tell whether it predicts the same; `refused` says why it cannot be made."""
    try:
        write_bytes(path, _int8(model))
        after = rows.predictions(path)
        loss, most_lost = loss_of(metric, rows.target, before, after, seed, rows.weight)
        value = measure(metric, rows.target, after, rows.weight)
    except LooplineError as error:
        return VariantMeasurement(name=INT8, refused=str(error).splitlines()[0][:MOST_REASON]), False
    size = path.stat().st_size
    measured = VariantMeasurement(name=INT8, size_bytes=size, value=value, loss=loss, most_lost=most_lost)
    return measured, are_same(before, after)


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


def _int8(model: onnx.ModelProto) -> bytes:
    try:
        return bytes(dynamic_int8(model).SerializeToString(deterministic=True))
    except LooplineError:
        raise
    except Exception as error:  # the tool raises errors of many kinds, and no variant may stop the loop
        raise TrainingError(f"cannot be made: {type(error).__name__}: {error}") from error
