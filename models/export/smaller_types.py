"""Eight-bit weights and products in the net alone, by ONNX Runtime's own quantisation.

Preparation and head do not change: the meaning of columns and the precision of probabilities stay the same.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from models.errors import TrainingError
from models.export.layers import Layers, is_plain, is_upright

DYNAMIC = ("MatMul", "Gather", "LSTM")
"""Without Conv: with ranges computed at each call it takes up to ten times as long (cnn of mnist, 0.7 -> 6.9 ms)."""
FOLDED = ("Slice", "Concat", "Unsqueeze", "Transpose")
"""Operators by which torch's exporter puts the gates of a recurrent cell into ONNX's order."""
SMALL = ("INT8", "UINT8")


def dynamic_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with eight-bit weights; the range of the activations is computed at each call.

    Raises:
        TrainingError: No layer of the net can be quantised so.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _files(_with_products(model)) as (source, out):
        quantize_dynamic(
            source,
            out,
            op_types_to_quantize=list(DYNAMIC),
            nodes_to_quantize=_names(model),
            weight_type=QuantType.QInt8,
            reduce_range=True,  # seven bits: eight overflow without VNNI, and the file must run on any processor
        )
        return _taken(onnx.load(out), model)


def _names(model: onnx.ModelProto) -> list[str]:
    names = [node.name for node in Layers(model).nodes(*DYNAMIC, "Gemm")]
    if not names:
        raise TrainingError(f"the net has no layer that can be made int8 ({', '.join(DYNAMIC)})")
    return names


def _with_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that ONNX Runtime can quantise dynamically: it needs MatMul and LSTM with constant weights.

    Each Gemm becomes a MatMul and an Add; weights that the graph computes from constants are computed here.
    """
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    layers = Layers(plain)
    nodes: list[onnx.NodeProto] = []
    for node in plain.graph.node:
        if node.op_type in FOLDED and all(name in layers.constants for name in node.input):
            (value,) = ReferenceEvaluator(node).run(None, {name: layers.array(name) for name in node.input})
            layers.put(node.output[0], value)
            continue
        weight = layers.array(node.input[1]) if node.op_type == "Gemm" else None
        nodes += [node] if weight is None else _product(node, weight, layers)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del plain.graph.node[:]
    plain.graph.node.extend(copies)
    layers.drop_unread()
    return plain


def _product(node: onnx.NodeProto, weight: np.ndarray, layers: Layers) -> list[onnx.NodeProto]:
    if not is_plain(node):
        return [node]
    upright = f"{node.name}/weight"
    layers.put(upright, weight.T if is_upright(node) else weight)
    output = node.output[0]
    if len(node.input) < 3:
        return [onnx.helper.make_node("MatMul", [node.input[0], upright], [output], name=node.name)]
    product = f"{node.name}/product"
    return [
        onnx.helper.make_node("MatMul", [node.input[0], upright], [product], name=node.name),
        onnx.helper.make_node("Add", [product, node.input[2]], [output], name=f"{node.name}/bias"),
    ]


@contextlib.contextmanager
def _files(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """Yield a file of the model and a path for the result; the tool damages a model that it gets in memory."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it recommends its own pre-processing, which would change preparation and head
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder) / "source.onnx", Path(folder) / "out.onnx"
            onnx.save(model, source)
            yield str(source), str(out)
    finally:
        root.setLevel(level)


def _taken(converted: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the tool's model with the metadata and producer of the original model."""
    kinds = {onnx.TensorProto.DataType.Name(constant.data_type) for constant in converted.graph.initializer}
    if not kinds & set(SMALL):
        raise TrainingError("ONNX Runtime's quantisation found no layer of the net that it can make int8")
    del converted.metadata_props[:]
    converted.metadata_props.extend(model.metadata_props)
    converted.producer_name, converted.producer_version = model.producer_name, model.producer_version
    del converted.graph.value_info[:]
    return converted
