"""The preparation as ONNX nodes: they turn raw columns into the net's tensors.

Those of each kind of input stand in `models/inputs`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.compose
from onnx import helper

from models.data.preparation import Preparation
from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder, stacked
from models.inputs.nodes import write_nodes
from models.inputs.numeric.nodes import normalise
from models.kinds.data_kind import PerDataKind
from models.ngrams.graph import ML_DOMAIN


def graph_inputs(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    """Return the inputs of the exported graph by the project's own column names; the first dimension is the batch."""
    return _GRAPH_INPUTS[preparation.kind](preparation)


def preparation_part(preparation: Preparation, tensors: set[str]) -> GraphBuilder:
    """Return the nodes that make the net's tensors: `core/numeric`, `core/categorical`, `core/image` and so on.

    Args:
        preparation: The preparation schema of the model.
        tensors: The tensors that the net reads; no nodes are written for the others.
    """
    builder = GraphBuilder("prepare/")
    _WRITTEN[preparation.kind](builder, preparation, tensors)
    return builder


def _inputs_of_table(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    columns = [(name, onnx.TensorProto.DOUBLE) for name in preparation.number_columns]
    columns += [(name, onnx.TensorProto.STRING) for name in preparation.text_columns]
    return [helper.make_tensor_value_info(name, kind, ["batch"]) for name, kind in columns]


def _inputs_of_images(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    image = preparation.required_pixels.image
    shape = ["batch", image.height, image.width, image.channels]
    return [helper.make_tensor_value_info("image", onnx.TensorProto.UINT8, shape)]


def _inputs_of_series(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    shape = ["batch", preparation.required_window.length, len(preparation.numeric)]
    return [helper.make_tensor_value_info("series", onnx.TensorProto.DOUBLE, shape)]


def _inputs_of_text(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    del preparation
    return [helper.make_tensor_value_info("text", onnx.TensorProto.INT64, ["batch", "length"])]


_GRAPH_INPUTS: PerDataKind[Callable[[Preparation], list[onnx.ValueInfoProto]]] = {
    "table": _inputs_of_table,
    "image": _inputs_of_images,
    "series": _inputs_of_series,
    "text": _inputs_of_text,
}


def _of_rows(builder: GraphBuilder, preparation: Preparation, tensors: set[str]) -> None:
    for tensor, join in _JOINED.items():
        if tensor in tensors:
            join(builder, write_nodes(builder, tensor, preparation.inputs, preparation.files), preparation)


def _of_series(builder: GraphBuilder, preparation: Preparation, tensors: set[str]) -> None:
    del tensors
    raw = _carried_forward(builder, "series", preparation.required_window.length)
    normalise(builder, raw, preparation.numeric, CORE_PREFIX + "series")


def _of_text(builder: GraphBuilder, preparation: Preparation, tensors: set[str]) -> None:
    """Convert code points to indices of the alphabet."""
    del tensors
    characters = preparation.required_characters
    builder.node(
        "LabelEncoder",
        ["text"],
        "characters/index",
        output=CORE_PREFIX + "tokens",
        domain=ML_DOMAIN,
        keys_int64s=[ord(character) for character in characters.alphabet],
        values_int64s=list(range(1, characters.cardinality)),
        default_int64=0,
    )


_WRITTEN: PerDataKind[Callable[[GraphBuilder, Preparation, set[str]], None]] = {
    "table": _of_rows,
    "image": _of_rows,
    "series": _of_series,
    "text": _of_text,
}


def _join_numbers(builder: GraphBuilder, outputs: list[str], preparation: Preparation) -> None:
    if outputs:
        builder.node("Concat", outputs, "numeric", output=CORE_PREFIX + "numeric", axis=1)
    else:
        _nothing(builder, preparation.columns[0], "numeric", onnx.TensorProto.FLOAT)


def _join_indices(builder: GraphBuilder, outputs: list[str], preparation: Preparation) -> None:
    if outputs:
        stacked(builder, outputs, "categorical/stacked", CORE_PREFIX + "categorical")
    else:
        _nothing(builder, preparation.columns[0], "categorical", onnx.TensorProto.INT64)


def _join_words(builder: GraphBuilder, outputs: list[str], preparation: Preparation) -> None:
    del preparation
    builder.node("Concat", outputs, "words", output=CORE_PREFIX + "words", axis=1)


def _leave_whole(builder: GraphBuilder, outputs: list[str], preparation: Preparation) -> None:
    del builder, outputs, preparation


_JOINED: dict[str, Callable[[GraphBuilder, list[str], Preparation], None]] = {
    "numeric": _join_numbers,
    "categorical": _join_indices,
    "words": _join_words,
    "image": _leave_whole,
}
"""How the outputs of the kinds of inputs become the tensors of rows."""


def _carried_forward(builder: GraphBuilder, raw: str, length: int) -> str:
    """Replace a missing value by the last known one of its window, if there is one.

    The last known step is a running maximum, which takes log2(length) steps: each looks twice as far back as the one
    before.
    """
    axis = builder.constant("carry/axis", np.array([1], np.int64))
    start, stop = (builder.constant(f"carry/{bound}", np.array([bound], np.int64)) for bound in (0, length))
    none = builder.constant("carry/none", np.array(-1, np.int64))
    steps = builder.constant("carry/steps", np.arange(length).reshape(1, -1, 1))
    missing = builder.node("IsNaN", [raw], "carry/missing")
    last = builder.node("Where", [missing, none, steps], "carry/known")
    for back in (1 << power for power in range((length - 1).bit_length())):
        pads = builder.constant(f"carry/pads/{back}", np.array([back, 0], np.int64))
        padded = builder.node("Pad", [last, pads, none, axis], f"carry/padded/{back}")
        earlier = builder.node("Slice", [padded, start, stop, axis], f"carry/earlier/{back}")
        last = builder.node("Max", [last, earlier], f"carry/last/{back}")
    zero = builder.constant("carry/zero", np.array(0, np.int64))
    place = builder.node("Max", [last, zero], "carry/place")
    return builder.node("GatherElements", [raw, place], "carry/carried", axis=1)


def _nothing(builder: GraphBuilder, column: str, prefix: str, dtype: int) -> None:
    """Add an empty tensor (batch, 0), the net's input for a kind of column that the table lacks."""
    batch = builder.node("Shape", [column], f"{prefix}/batch")
    zero = builder.constant(f"{prefix}/zero", np.array([0], np.int64))
    shape = builder.node("Concat", [batch, zero], f"{prefix}/shape", axis=0)
    value = helper.make_tensor("value", dtype, [1], [0])
    builder.node("ConstantOfShape", [shape], f"{prefix}/empty", output=CORE_PREFIX + prefix, value=value)
