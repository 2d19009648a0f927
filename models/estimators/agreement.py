"""How far the graph of a model is apart from the model itself, also where a value equals a threshold of its trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import TrainingError
from models.estimators.inputs import Matrix

AGREEMENT = 1e-4
"""Largest difference between a model and its graph, of the spread of its answers, or of 1."""
MOST_THRESHOLDS = 200
"""Thresholds whose values are compared: those of some nodes of a large model."""
CURE = "change its arguments, or take another estimator"


def run_graph(graph: bytes, x: Matrix) -> NDArray[Any]:
    """Return the output of an ONNX graph with one input for a matrix, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


def check_agreement(answer: Callable[[Matrix], NDArray[Any]], graph: bytes, x: Matrix, where: str) -> float:
    """Return the largest difference between a model's answers and its graph's, for rows and at thresholds.

    Args:
        answer: Returns what the model says (row, output); of two classes that of the second alone.
        graph: In the form of `converters.py`.
        x: Rows (row, column).
        where: What the message begins with.

    Raises:
        TrainingError: The graph does not run, or they are apart.
    """
    rows = np.concatenate([x, at_thresholds(graph, x)])
    try:
        actual = run_graph(graph, rows)
    except Exception as error:  # the runtime's own classes have no common base
        raise TrainingError(f"{where}: its ONNX graph does not run ({str(error).splitlines()[0]}): {CURE}") from error
    return difference(np.asarray(answer(rows), np.float64).reshape(len(rows), -1), actual, where)


def difference(expected: NDArray[np.float64], actual: NDArray[Any], where: str) -> float:
    """Return the largest difference between the answers of a model and of its graph (row, output).

    Raises:
        TrainingError: They have other shapes, or are apart.
    """
    if expected.shape != actual.shape:
        raise TrainingError(
            f"{where}: its ONNX graph answers {actual.shape[1:]} numbers a row, expected {expected.shape[1:]}: {CURE}"
        )
    apart = float(np.abs(expected - actual).max())
    if not apart <= AGREEMENT * max(1.0, float(expected.std())):
        raise TrainingError(
            f"{where}: its ONNX graph is {apart:.2g} apart from the fitted estimator, expected at most {AGREEMENT:g}: "
            f"{CURE}"
        )
    return apart


def at_thresholds(graph: bytes, x: Matrix) -> Matrix:
    """Return rows in which one value each equals a threshold of trees that read the input itself; else none."""
    import onnx
    from onnx import numpy_helper

    nodes = onnx.load_from_string(graph).graph.node
    producers = {name: node for node in nodes for name in node.output}
    rows = []
    for node in nodes:
        if node.op_type != "TreeEnsemble" or not _is_input(node.input[0], producers):
            continue
        columns = {attribute.name: attribute for attribute in node.attribute}
        splits, features = numpy_helper.to_array(columns["nodes_splits"].t), columns["nodes_featureids"].ints
        finite = np.flatnonzero(np.isfinite(splits))  # scikit-learn splits gaps from all numbers at infinity
        for position in finite[:: max(1, len(finite) // MOST_THRESHOLDS)]:
            row = x[position % len(x)].copy()
            row[features[position]] = splits[position]
            rows.append(row)
    return np.array(rows, np.float32).reshape(-1, x.shape[1])


def _is_input(name: str, producers: Mapping[str, Any]) -> bool:
    """Return whether nothing but casts lies between the input and what is read."""
    while name in producers and producers[name].op_type == "Cast":
        name = producers[name].input[0]
    return name not in producers
