"""Smaller number types in the net alone: int8 weights and products by ONNX Runtime's own quantisation, fp16 weights.

Preparation and head do not change: the meaning of columns and the precision of probabilities stay the same.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from models.errors import TrainingError
from models.export.layers import FLOAT, Layers, is_plain, is_upright
from models.inference.predict import Feed

DYNAMIC = ("MatMul", "Gather", "LSTM")
"""Without Conv: with ranges computed at each call it takes up to ten times as long (cnn of mnist, 0.7 -> 6.9 ms)."""
STATIC = ("MatMul", "Gemm", "Conv", "Gather", "Relu", "MaxPool")
"""Without sums, norms and softmax, which lose the most precision and hold no weights."""
DENSE = ("MatMul", "Gemm")
"""Their outputs stay single precision, above all the net's output: eight-bit logits would have only a few levels."""
FOLDED = ("Slice", "Concat", "Unsqueeze", "Transpose")
"""Operators by which torch's exporter puts the gates of a recurrent cell into ONNX's order."""
SMALL = ("INT8", "UINT8")
LEAST_WEIGHTS = 64
"""A smaller constant (an epsilon, a scale) saves too little for an operator, and may need full precision."""
LARGEST = float(np.finfo(np.float16).max)


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
            nodes_to_quantize=_names(model, DYNAMIC, "Gemm"),
            weight_type=QuantType.QInt8,
            reduce_range=True,  # seven bits: eight overflow without VNNI, and the file must run on any processor
        )
        return _taken(onnx.load(out), model)


def static_int8(model: onnx.ModelProto, calibration: Sequence[Feed]) -> onnx.ModelProto:
    """Return a copy with eight-bit weights and activations; the activations' ranges come from some training rows.

    Args:
        model: The exported model.
        calibration: Training rows as inputs of the graph.

    Raises:
        TrainingError: No layer of the net can be quantised so.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Rows(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(calibration)

        def get_next(self) -> Feed | None:
            return next(self._left, None)

    with _files(model) as (source, out):
        quantize_static(
            source,
            out,
            Rows(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(STATIC),
            nodes_to_quantize=_names(model, STATIC),
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            reduce_range=True,
            extra_options={"OpTypesToExcludeOutputQuantization": list(DENSE)},
        )
        return _taken(onnx.load(out), model)


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose weights are float16, each with an operator that widens it; it computes in single precision.

    ONNX Runtime has no half-precision arithmetic for most operators on a CPU and would convert around each of them, at
    every call. These weights are widened once, when the file is loaded, and add nothing to the time of a call.

    Raises:
        TrainingError: The net has no weights to halve, or a weight is beyond the range of float16.
    """
    smaller = onnx.ModelProto()
    smaller.CopyFrom(model)
    layers = Layers(smaller)
    widen = []
    for name, tensor in layers.constants.items():
        if tensor.data_type != FLOAT or int(np.prod(tensor.dims)) < LEAST_WEIGHTS:
            continue
        values = layers.array(name)
        assert values is not None
        if not np.abs(values).max() <= LARGEST:
            raise TrainingError(f"weight {name} holds {np.abs(values).max():g}, beyond float16's {LARGEST:g}")
        layers.put(name, values.astype(np.float16))
        tensor.name = f"{name}/half"
        widen.append(onnx.helper.make_node("Cast", [tensor.name], [name], name=f"{name}/widen", to=FLOAT))
    if not widen:
        raise TrainingError("the net has no weights to keep in half precision")
    nodes = list(smaller.graph.node)
    del smaller.graph.node[:]
    smaller.graph.node.extend([*widen, *nodes])
    return smaller


def _names(model: onnx.ModelProto, kinds: Sequence[str], *further_kinds: str) -> list[str]:
    names = [node.name for node in Layers(model).nodes(*kinds, *further_kinds)]
    if not names:
        raise TrainingError(f"the net has no layer that can be made int8 ({', '.join(kinds)})")
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
