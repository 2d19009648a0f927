"""The head as a stretch of ONNX graph: the net's raw output in, what a caller asked for out."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from models.data.preparation import Preparation
from models.export.graph_builder import ML_DOMAIN, GraphBuilder
from models.export.preparation_graph import CORE_PREFIX
from models.inference.names import BITS, LABEL, LOG_PROBABILITIES, PREDICTION, PROBABILITIES


def graph_outputs(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    """The outputs of the exported graph, in order."""
    types = onnx.TensorProto
    if preparation.task == "regression":
        return [helper.make_tensor_value_info(PREDICTION, types.FLOAT, ["batch"])]
    if preparation.task == "language":
        shape = ["batch", "length", preparation.num_outputs]
        return [
            helper.make_tensor_value_info(LOG_PROBABILITIES, types.FLOAT, shape),
            helper.make_tensor_value_info(BITS, types.FLOAT, ["batch", "length_less_1"]),
        ]
    num_classes = len(preparation.target.classes or ())
    return [
        helper.make_tensor_value_info(LABEL, types.STRING, ["batch"]),
        helper.make_tensor_value_info(PROBABILITIES, types.FLOAT, ["batch", num_classes]),
    ]


def head_stretch(preparation: Preparation, raw: str) -> GraphBuilder:
    """The nodes that turn logits into probabilities and a label, or put a regression back into its own unit.

    Of text: into the log-probabilities (natural) of the character after each, and the bits that each but the first one
    cost.

    Args:
        preparation: The schema that travels with the model.
        raw: Name of the core's output (batch, num_outputs), float32 or float64; of text (batch, length, num_outputs).
    """
    stretch = GraphBuilder("head/")
    if preparation.task == "regression":
        _regression(stretch, preparation, raw)
    elif preparation.task == "language":
        _language(stretch, raw)
    else:
        _classification(stretch, preparation, raw)
    return stretch


def _regression(stretch: GraphBuilder, preparation: Preparation, raw: str) -> None:
    axis = stretch.constant("axis", np.array([1], np.int64))
    scale = stretch.constant("scale", np.array(preparation.target.scale, np.float64))
    shift = stretch.constant("shift", np.array(preparation.target.shift, np.float64))
    flat = stretch.node("Squeeze", [raw, axis], "flat")
    double = stretch.node("Cast", [flat], "double", to=onnx.TensorProto.DOUBLE)
    scaled = stretch.node("Mul", [double, scale], "scaled")
    own_unit = stretch.node("Add", [scaled, shift], "own_unit")
    stretch.node("Cast", [own_unit], "prediction", output=PREDICTION, to=onnx.TensorProto.FLOAT)


def _language(stretch: GraphBuilder, raw: str) -> None:
    def whole(name: str, *numbers: int) -> str:
        return stretch.constant(name, np.array(numbers, np.int64))

    logits = stretch.node("Cast", [raw], "logits", to=onnx.TensorProto.FLOAT)
    chances = stretch.node("LogSoftmax", [logits], "chances", output=LOG_PROBABILITIES, axis=2)
    first, second, last, end, places = (
        whole("first", 0), whole("second", 1), whole("last", -1), whole("end", np.iinfo(np.int64).max), whole("axis", 1)
    )  # fmt: skip
    before = stretch.node("Slice", [chances, first, last, places], "before")
    after = stretch.node("Slice", [CORE_PREFIX + "tokens", second, end, places], "after")
    column = stretch.node("Unsqueeze", [after, whole("depth", 2)], "column")
    came = stretch.node("GatherElements", [before, column], "came", axis=2)
    flat = stretch.node("Squeeze", [came, whole("flat_axis", 2)], "flat")
    unit = stretch.constant("unit", np.array(-1 / np.log(2), np.float32))
    stretch.node("Mul", [flat, unit], "bits", output=BITS)


def _classification(stretch: GraphBuilder, preparation: Preparation, raw: str) -> None:
    classes = preparation.target.classes or []
    # ONNX Runtime's float32 sigmoid is 0.0 at -30, which log loss would not forgive. A float64 softmax over
    # (0, logit) is the same function and keeps every digit, on both sides.
    logits = stretch.node("Cast", [raw], "logits", to=onnx.TensorProto.DOUBLE)
    if preparation.task == "binary":
        zeros = stretch.node("Sub", [logits, logits], "zeros")
        logits = stretch.node("Concat", [zeros, logits], "both_logits", axis=1)
    exact = stretch.node("Softmax", [logits], "exact", axis=1)
    stretch.node("Cast", [exact], "probabilities", output=PROBABILITIES, to=onnx.TensorProto.FLOAT)
    index = stretch.node("ArgMax", [exact], "index", axis=1, keepdims=0)
    stretch.node(
        "LabelEncoder",
        [index],
        "label",
        output=LABEL,
        domain=ML_DOMAIN,
        keys_int64s=list(range(len(classes))),
        values_strings=[name.encode() for name in classes],
    )
