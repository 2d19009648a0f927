"""fp16 weights: half the file size; the model still computes in single precision.

ONNX Runtime has no half-precision arithmetic for most operators on a CPU and would convert around each of them, at
every call. These weights are widened once, when the file is loaded, and add nothing to the time of a call.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from models.errors import TrainingError
from models.export.layers import FLOAT, Layers

LEAST_WEIGHTS = 64
"""A smaller constant (an epsilon, a scale) saves too little for an operator, and may need full precision."""
LARGEST = float(np.finfo(np.float16).max)


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose weights are float16, each with an operator that widens it.

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
        widen.append(helper.make_node("Cast", [tensor.name], [name], name=f"{name}/widen", to=FLOAT))
    if not widen:
        raise TrainingError("the net has no weights to keep in half precision")
    nodes = list(smaller.graph.node)
    del smaller.graph.node[:]
    smaller.graph.node.extend([*widen, *nodes])
    return smaller
