"""The models of an estimator's outputs as nodes of one graph, from the numbers and categories to the raw outputs.

They are the arithmetic of `InputPlan.matrix` and of `raw_outputs`, node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx.compose

from models.estimators.inputs import InputPlan
from models.estimators.one_form import INPUT, OUTPUT
from models.estimators.rows import LEAST_CHANCE, Output
from models.estimators.stored import OutputModel, StoredEstimator
from models.inputs.graph_builder import GraphBuilder
from models.kinds.task import Link, PerLink

GraphOf = Callable[[OutputModel], bytes]
"""The model of an output -> its graph in the form of `converters.py`."""
_END = np.iinfo(np.int64).max


def join(
    builder: GraphBuilder,
    features: str,
    estimator: StoredEstimator,
    graph_of: GraphOf,
    output: Output,
    link: Link,
    num_classes: int,
) -> str:
    """Append an estimator; returns the name of its raw outputs (batch, output), float64.

    Args:
        builder: What its names begin with keeps the models of an ensemble apart.
        features: Numbers, then indices of categories (batch, input), of any type.
        estimator: What it learnt.
        graph_of: The graph of the model of an output.
        output: What its predictions are.
        link: Of the goal's task.
        num_classes: Of each output, also those that no row has; 0 for numbers.
    """
    matrix = _matrix(builder, features, estimator.plan)
    columns = []
    for index, model in enumerate(estimator.outputs):
        name = f"output{index}"
        raw = _raw(builder, model, graph_of, matrix, name)
        columns.append(
            _OUTPUTS[link](builder, _class_scores(builder, raw, model.classes, num_classes, output, name), name)
        )
    return builder.node("Concat", columns, "raw", axis=1)


def _matrix(builder: GraphBuilder, features: str, plan: InputPlan) -> str:
    """Append the matrix of a plan (batch, column), float32."""
    whole = builder.node("Cast", [features], "matrix/features", to=onnx.TensorProto.FLOAT)
    numbers = _columns(builder, whole, 0, plan.num_numbers, "matrix/numbers")
    if plan.shift:
        shift = builder.constant("matrix/shift", np.array(plan.shift, np.float32))
        scale = builder.constant("matrix/scale", np.array(plan.scale, np.float32))
        shifted = builder.node("Sub", [numbers, shift], "matrix/shifted")
        numbers = builder.node("Div", [shifted, scale], "matrix/standardised")
    if not plan.one_hot:
        indices = _columns(builder, whole, plan.num_numbers, _END, "matrix/indices")
        return builder.node("Concat", [numbers, indices], "matrix", axis=1)
    parts = [numbers]
    for position, width in enumerate(plan.one_hot, plan.num_numbers):
        name = f"matrix/category{position}"
        index = _columns(builder, whole, position, position + 1, f"{name}/index")
        codes = builder.constant(f"{name}/codes", np.arange(width, dtype=np.float32))
        equal = builder.node("Equal", [index, codes], f"{name}/equal")
        parts.append(builder.node("Cast", [equal], name, to=onnx.TensorProto.FLOAT))
    return builder.node("Concat", parts, "matrix", axis=1)


def _columns(builder: GraphBuilder, table: str, start: int, stop: int, name: str) -> str:
    """Append the columns of a table from `start` to before `stop`."""
    bounds = [
        builder.constant(f"{name}/{bound}", np.array([value], np.int64))
        for bound, value in (("start", start), ("stop", stop), ("axis", 1))
    ]
    return builder.node("Slice", [table, *bounds], name)


def _raw(builder: GraphBuilder, model: OutputModel, graph_of: GraphOf, matrix: str, name: str) -> str:
    """Append the predictions of an output's model (batch, column); of one class alone a column of zeros."""
    if not model.model:
        rows = builder.node("Shape", [matrix], f"{name}/rows", end=1)
        whole = builder.constant(f"{name}/whole", np.array([1], np.int64))
        shape = builder.node("Concat", [rows, whole], f"{name}/shape", axis=0)
        return builder.node("Expand", [builder.constant(f"{name}/zero", np.zeros((1, 1))), shape], f"{name}/none")
    prefix = f"{builder.prefix}{name}/"
    graph = onnx.compose.add_prefix(onnx.load_from_string(graph_of(model)), prefix).graph
    builder.node("Identity", [matrix], f"{name}/matrix", output=prefix + INPUT)
    builder.nodes += graph.node
    builder.constants += graph.initializer
    return prefix + OUTPUT


def _class_scores(
    builder: GraphBuilder, raw: str, codes: Sequence[int], num_classes: int, output: Output, name: str
) -> str:
    """Append what `class_scores` reckons from the predictions of a model: a score of each class (batch, class)."""
    if not num_classes:
        return raw
    if len(codes) == 2:
        raw = builder.node("Concat", [_FIRST_OF_TWO[output](builder, raw, name), raw], f"{name}/both", axis=1)
    if output == "probabilities" and len(codes) > 1:
        bounds = [
            builder.constant(f"{name}/{bound}", np.array(value))
            for bound, value in (("least", LEAST_CHANCE), ("most", 1 - LEAST_CHANCE))
        ]
        raw = builder.node("Log", [builder.node("Clip", [raw, *bounds], f"{name}/cut")], f"{name}/logarithms")
    if len(codes) == num_classes:
        return raw
    pads = builder.constant(f"{name}/pads", np.array([0, 0, 0, 1], np.int64))
    least = builder.constant(f"{name}/unseen", np.log(np.array(LEAST_CHANCE)))
    padded = builder.node("Pad", [raw, pads, least], f"{name}/padded")
    positions = [codes.index(code) if code in codes else len(codes) for code in range(num_classes)]
    order = builder.constant(f"{name}/order", np.array(positions, np.int64))
    return builder.node("Gather", [padded, order], f"{name}/classes", axis=1)


def _chance_of_first(builder: GraphBuilder, second: str, name: str) -> str:
    return builder.node("Sub", [builder.constant(f"{name}/all", np.array(1.0)), second], f"{name}/first")


def _zero_of_first(builder: GraphBuilder, second: str, name: str) -> str:
    return builder.node("Sub", [second, second], f"{name}/first")


_FIRST_OF_TWO: dict[Output, Callable[[GraphBuilder, str, str], str]] = {
    "probabilities": _chance_of_first,
    "scores": _zero_of_first,
}


def _as_they_are(builder: GraphBuilder, scores: str, name: str) -> str:
    return scores


def _logit(builder: GraphBuilder, scores: str, name: str) -> str:
    second, first = (_columns(builder, scores, code, code + 1, f"{name}/score{code}") for code in (1, 0))
    return builder.node("Sub", [second, first], f"{name}/logit")


_OUTPUTS: PerLink[Callable[[GraphBuilder, str, str], str]] = {
    "logistic": _logit,
    "softmax": _as_they_are,
    "identity": _as_they_are,
    "text": _as_they_are,  # estimators take no texts: refused before
}
