"""An exported model of dense layers, written by hand: what variants are made of, without torch and its exporter."""

import numpy as np
import onnx

from models.data.preparation import Preparation
from models.export.graph import assemble
from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder


def dense_model(preparation: Preparation, hidden: int = 32) -> onnx.ModelProto:
    """Numbers of a table through two hidden layers."""
    rng = np.random.default_rng(7)
    inputs = preparation.num_numeric
    core = GraphBuilder(CORE_PREFIX)

    def weights(name: str, *shape: int) -> str:
        return core.constant(name, rng.normal(scale=max(shape) ** -0.5, size=shape).astype(np.float32))

    bias = rng.normal(size=hidden).astype(np.float32)
    first = core.node(
        "Gemm", ["core/numeric", weights("w1", hidden, inputs), core.constant("b1", bias)], "first", transB=1
    )
    flat = core.node("Relu", [first], "relu1")
    second = core.node("Gemm", [flat, weights("w2", hidden, hidden), weights("b2", hidden)], "second")
    gate = core.node("Sigmoid", [second], "gate")
    flat = core.node("Mul", [second, gate], "silu")
    output = core.node("MatMul", [flat, weights("w3", hidden, preparation.num_outputs)], "logits")
    return assemble(preparation, core, output, {"loopline.project": "tiny"})
