"""The head as ONNX nodes: they turn the net's raw output into the outputs of the served model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from models.data.preparation import ClassHead, Preparation
from models.data.target_encoding import LARGEST_LOGARITHM, TargetEncoding
from models.inference.names import BITS, LOG_PROBABILITIES
from models.inference.portable import LABEL, LABELS, PREDICTION, PROBABILITIES
from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder
from models.kinds.task import PerTask
from models.ngrams.graph import ML_DOMAIN


def graph_outputs(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    """Return the outputs of the exported graph, in order."""
    return HEADS[preparation.task].ports(preparation)


def head_part(preparation: Preparation, raw: str) -> GraphBuilder:
    """Return the nodes that turn logits into probabilities and a label, or scale a regression back to its own unit.

    Quantiles of a value are sorted, so that they never cross. A label of several is given if its probability is above
    its threshold.

    For text: the nodes that compute the natural log-probabilities of the character after each one, and the bits of each
    character except the first.

    Args:
        preparation: The preparation schema of the model.
        raw: Name of the core's output (batch, num_outputs), float32 or float64; of text (batch, length, num_outputs).
    """
    builder = GraphBuilder("head/")
    HEADS[preparation.task].nodes(builder, preparation, raw)
    return builder


def _number_ports(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    num_outputs = len(preparation.target.outputs)
    shape = ["batch", num_outputs] if num_outputs else ["batch"]
    return [helper.make_tensor_value_info(PREDICTION, onnx.TensorProto.FLOAT, shape)]


def _number(builder: GraphBuilder, preparation: Preparation, raw: str) -> None:
    _prediction(builder, _numbers(builder, preparation, raw))


def _quantiles(builder: GraphBuilder, preparation: Preparation, raw: str) -> None:
    _prediction(builder, _sorted(builder, _numbers(builder, preparation, raw), preparation.target))


def _prediction(builder: GraphBuilder, values: str) -> None:
    builder.node("Cast", [values], "prediction", output=PREDICTION, to=onnx.TensorProto.FLOAT)


def _numbers(builder: GraphBuilder, preparation: Preparation, raw: str) -> str:
    """Return the name of the predicted numbers in their own unit: (batch,), or of several outputs (batch, output)."""
    if not preparation.target.outputs:
        raw = builder.node("Squeeze", [raw, builder.constant("axis", np.array([1], np.int64))], "flat")
    return _own_unit(builder, preparation, _shifted(builder, preparation.quantile_shifts, preparation.target, raw))


def _own_unit(builder: GraphBuilder, preparation: Preparation, learnt: str) -> str:
    """Return the name of `TargetEncoding.decode` of what the net predicts."""
    target = preparation.target
    shift, scale = target.shift_and_scale()
    double = builder.node("Cast", [learnt], "double", to=onnx.TensorProto.DOUBLE)
    scaled = builder.node("Mul", [double, builder.constant("scale", scale)], "scaled")
    own_unit = builder.node("Add", [scaled, builder.constant("shift", shift)], "own_unit")
    if target.log_offset is None:
        return own_unit
    limit = builder.constant("limit", np.array(LARGEST_LOGARITHM, np.float64))
    offset = builder.constant("offset", np.array(target.log_offset, np.float64))
    power = builder.node("Exp", [builder.node("Min", [own_unit, limit], "limited")], "power")
    value = builder.node("Sub", [power, offset], "value")
    return builder.node("Max", [value, builder.constant("zero", np.array(0.0))], "floored")


def _shifted(builder: GraphBuilder, quantile_shifts: list[float], target: TargetEncoding, learnt: str) -> str:
    """Return the name of what the net predicts, its quantiles in order and shifted if the preparation shifts them."""
    if not quantile_shifts:
        return learnt
    double = builder.node("Cast", [learnt], "learnt", to=onnx.TensorProto.DOUBLE)
    if target.num_quantiles > 1:
        double = _sorted(builder, double, target, "learnt_")
    shifts = builder.constant("quantile_shifts", np.array(quantile_shifts, np.float64))
    return builder.node("Add", [double, shifts], "shifted")


def _sorted(builder: GraphBuilder, values: str, target: TargetEncoding, prefix: str = "") -> str:
    """Return the name of (batch, horizon * quantile), the quantiles of each horizon in order."""
    num_quantiles, num_horizons = target.num_quantiles, len(target.columns)
    num = builder.constant(f"{prefix}num", np.array([num_quantiles], np.int64))
    if num_horizons > 1:
        shape = builder.constant(f"{prefix}apart", np.array([0, num_horizons, num_quantiles], np.int64))
        values = builder.node("Reshape", [values, shape], f"{prefix}by_horizon")
    names = [builder.prefix + f"{prefix}sorted", builder.prefix + f"{prefix}order"]
    builder.nodes.append(helper.make_node("TopK", [values, num], names, name=names[0], axis=-1, largest=0, sorted=1))
    if num_horizons == 1:
        return names[0]
    shape = builder.constant(f"{prefix}together", np.array([0, num_horizons * num_quantiles], np.int64))
    return builder.node("Reshape", [names[0], shape], f"{prefix}outputs")


def _text_ports(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    shape = ["batch", "length", preparation.num_outputs]
    return [
        helper.make_tensor_value_info(LOG_PROBABILITIES, onnx.TensorProto.FLOAT, shape),
        helper.make_tensor_value_info(BITS, onnx.TensorProto.FLOAT, ["batch", "length_less_1"]),
    ]


def _text(builder: GraphBuilder, preparation: Preparation, raw: str) -> None:
    del preparation

    def whole(name: str, *numbers: int) -> str:
        return builder.constant(name, np.array(numbers, np.int64))

    logits = builder.node("Cast", [raw], "logits", to=onnx.TensorProto.FLOAT)
    chances = builder.node("LogSoftmax", [logits], "chances", output=LOG_PROBABILITIES, axis=2)
    first, second, last, end, places = (
        whole("first", 0), whole("second", 1), whole("last", -1), whole("end", np.iinfo(np.int64).max), whole("axis", 1)
    )  # fmt: skip
    before = builder.node("Slice", [chances, first, last, places], "before")
    after = builder.node("Slice", [CORE_PREFIX + "tokens", second, end, places], "after")
    column = builder.node("Unsqueeze", [after, whole("depth", 2)], "column")
    of_next = builder.node("GatherElements", [before, column], "came", axis=2)
    flat = builder.node("Squeeze", [of_next, whole("flat_axis", 2)], "flat")
    unit = builder.constant("unit", np.array(-1 / np.log(2), np.float32))
    builder.node("Mul", [flat, unit], "bits", output=BITS)


def _label_ports(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    shape = ["batch", len(preparation.target.outputs)]
    return [
        helper.make_tensor_value_info(LABELS, onnx.TensorProto.BOOL, shape),
        helper.make_tensor_value_info(PROBABILITIES, onnx.TensorProto.FLOAT, shape),
    ]


def _labels(builder: GraphBuilder, preparation: Preparation, raw: str) -> None:
    double = builder.node("Cast", [raw], "double", to=onnx.TensorProto.DOUBLE)
    exact = builder.node("Sigmoid", [double], "exact")
    builder.node("Cast", [exact], "probabilities", output=PROBABILITIES, to=onnx.TensorProto.FLOAT)
    threshold = builder.constant("half", np.array(preparation.class_head.thresholds or 0.5))
    builder.node("Greater", [exact, threshold], "labels", output=LABELS)


def _class_ports(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    num_classes = len(preparation.target.names)
    return [
        helper.make_tensor_value_info(LABEL, onnx.TensorProto.STRING, ["batch"]),
        helper.make_tensor_value_info(PROBABILITIES, onnx.TensorProto.FLOAT, ["batch", num_classes]),
    ]


def _two_classes(builder: GraphBuilder, preparation: Preparation, raw: str) -> None:
    # ONNX Runtime's float32 sigmoid is 0.0 at -30, which log loss punishes heavily. A float64 softmax over
    # (0, logit) is the same function and keeps full precision near 0 and near 1.
    logits = builder.node("Cast", [raw], "logits", to=onnx.TensorProto.DOUBLE)
    zeros = builder.node("Sub", [logits, logits], "zeros")
    both = builder.node("Concat", [zeros, logits], "both_logits", axis=1)
    head = preparation.class_head
    exact = _probabilities(builder, head, both)
    index = _above(builder, head, exact) if head.threshold != 0.5 else _likeliest(builder, head, exact)
    _label(builder, preparation, index)


def _classes(builder: GraphBuilder, preparation: Preparation, raw: str) -> None:
    logits = builder.node("Cast", [raw], "logits", to=onnx.TensorProto.DOUBLE)
    exact = _probabilities(builder, preparation.class_head, logits)
    _label(builder, preparation, _likeliest(builder, preparation.class_head, exact))


def _probabilities(builder: GraphBuilder, head: ClassHead, logits: str) -> str:
    """Return the name of the calibrated probabilities in float64 (batch, class), which are an output in float32."""
    if head.slope != 1.0:
        logits = builder.node("Mul", [logits, builder.constant("slope", np.array(head.slope, np.float64))], "sloped")
    if head.offsets:
        logits = builder.node("Add", [logits, builder.constant("offsets", np.array(head.offsets))], "moved")
    exact = builder.node("Softmax", [logits], "exact", axis=1)
    builder.node("Cast", [exact], "probabilities", output=PROBABILITIES, to=onnx.TensorProto.FLOAT)
    return exact


def _above(builder: GraphBuilder, head: ClassHead, exact: str) -> str:
    """Return the name of the index of the class: 1 if the second one's probability is above the threshold."""
    second = builder.constant("second_class", np.array([1], np.int64))
    column = builder.node("Gather", [exact, second], "second_column", axis=1)
    positive = builder.node("Squeeze", [column, second], "positive")
    threshold = builder.constant("threshold", np.array(head.threshold, np.float64))
    above = builder.node("Greater", [positive, threshold], "above")
    return builder.node("Cast", [above], "index", to=onnx.TensorProto.INT64)


def _likeliest(builder: GraphBuilder, head: ClassHead, exact: str) -> str:
    """Return the name of the index of the class with the highest probability, or score if the head has scores."""
    scores = exact
    if head.score_weights:
        weights, offsets = np.array(head.score_weights), np.array(head.score_offsets)
        weighted = builder.node("Mul", [exact, builder.constant("score_weights", weights)], "weighted")
        scores = builder.node("Add", [weighted, builder.constant("score_offsets", offsets)], "scores")
    return builder.node("ArgMax", [scores], "index", axis=1, keepdims=0)


def _label(builder: GraphBuilder, preparation: Preparation, index: str) -> None:
    classes = preparation.target.names
    builder.node(
        "LabelEncoder",
        [index],
        "label",
        output=LABEL,
        domain=ML_DOMAIN,
        keys_int64s=list(range(len(classes))),
        values_strings=[name.encode() for name in classes],
    )


class Head(NamedTuple):
    """The end of a graph: `ports` returns its outputs, `nodes` adds what makes them of the net's raw output."""

    ports: Callable[[Preparation], list[onnx.ValueInfoProto]]
    nodes: Callable[[GraphBuilder, Preparation, str], None]


HEADS: PerTask[Head] = {
    "binary": Head(_class_ports, _two_classes),
    "multiclass": Head(_class_ports, _classes),
    "multilabel": Head(_label_ports, _labels),
    "regression": Head(_number_ports, _number),
    "quantile": Head(_number_ports, _quantiles),
    "language": Head(_text_ports, _text),
    "ranking": Head(_number_ports, _number),
}
