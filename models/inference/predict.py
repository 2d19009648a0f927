"""Predictions of an exported model, in the form that metrics take. Needs numpy and ONNX Runtime, never torch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import StoreError, TrainingError
from models.inference.names import ANSWERS
from models.inference.portable import open_session, rows_a_pass, run_in_passes

if TYPE_CHECKING:
    import onnxruntime

Feed = Mapping[str, np.ndarray]

WARM_UP_RUNS = 20


def session(path: Path, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session whose idle threads sleep: spinning costs four times the CPU of a small model.

    Raises:
        StoreError: The file is absent or is no ONNX model.
    """
    try:
        return open_session(path, threads)
    except Exception as error:
        raise StoreError(f"{path}: ONNX Runtime cannot run it ({error}): export it again") from error


def predict(path: Path, feeds: Iterable[Feed], preparation: Preparation, threads: int = 1) -> np.ndarray:
    """Return the predictions for all feeds, one after the other.

    Args:
        path: The exported model.
        feeds: Batches of raw columns, by the names of the graph's inputs.
        preparation: The preparation schema of the model.
        threads: Threads of ONNX Runtime.

    Raises:
        StoreError: The file is absent or is no ONNX model.
        TrainingError: The model cannot run on these rows.

    Returns:
        float64; binary: (rows,) probability of the positive class; multiclass: (rows, num_classes);
        regression: (rows,) in the target's own unit; ranking: (rows,) scores; several outputs: (rows, outputs);
        text: (windows, length) bits of each character.
    """
    running = session(path, threads)
    answer = ANSWERS[preparation.task]
    name = answer.outputs[-1]
    size = rows_a_pass(running)
    parts = [_run(running, name, feed, size) for feed in feeds]
    if not parts:
        if preparation.characters is not None:
            return np.zeros((0, preparation.characters.length))
        parts = [_of_no_rows(running, name)]
    return answer.part(np.concatenate(parts).astype(np.float64))


def _run(running: onnxruntime.InferenceSession, name: str, feed: Feed, size: int) -> np.ndarray:
    try:
        values: np.ndarray = run_in_passes(running, [name], feed, size)[0]
    except Exception as error:
        raise TrainingError(
            f"the exported model cannot run on these rows ({error}): give rows like those that it was trained on, or "
            "run the loop again"
        ) from error
    return values


def _of_no_rows(running: onnxruntime.InferenceSession, name: str) -> np.ndarray:
    """Return the output called `name` of no rows."""
    shape = next(output.shape for output in running.get_outputs() if output.name == name)
    return np.zeros((0, *shape[1:]))


def latency_ms(path: Path, example: Feed, runs: int = 200) -> float:
    """Return the median milliseconds of one call with `example`, on one thread that never spins.

    Args:
        path: The exported model.
        example: One row, or as many rows as a request carries.
        runs: Number of measured calls, after some warm-up calls.
    """
    running = session(path)
    feed: dict[str, Any] = dict(example)
    for _ in range(WARM_UP_RUNS):
        running.run(None, feed)
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        running.run(None, feed)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)) * 1e3
