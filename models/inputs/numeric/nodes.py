"""Numbers as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from models.inputs.graph_builder import GraphBuilder, stacked
from models.inputs.kind_nodes import KindNodes
from models.inputs.numeric.record import NumericInput, ScaledNumber
from models.inputs.record import InputRecord, LearntFiles


def normalise(
    builder: GraphBuilder, raw: str, parts: Sequence[ScaledNumber], output: str = "", *, prefix: str = "numeric"
) -> str:
    """Return numbers (batch, part) as `encode_numeric` makes them; `output` and `prefix` name the nodes."""

    def constant(name: str, values: list[float]) -> str:
        return builder.constant(f"{prefix}/{name}", np.array(values, np.float64))

    missing = builder.node("IsNaN", [raw], f"{prefix}/missing")
    fill = constant("fill", [part.fill for part in parts])
    filled = builder.node("Where", [missing, fill, raw], f"{prefix}/filled")
    if any(part.low is not None for part in parts):
        low = constant("low", [-np.inf if part.low is None else part.low for part in parts])
        high = constant("high", [np.inf if part.high is None else part.high for part in parts])
        filled = builder.node("Min", [builder.node("Max", [filled, low], f"{prefix}/least"), high], f"{prefix}/most")
    shift = constant("shift", [part.shift for part in parts])
    scale = constant("scale", [part.scale for part in parts])
    centred = builder.node("Sub", [filled, shift], f"{prefix}/centred")
    scaled = builder.node("Div", [centred, scale], f"{prefix}/scaled")
    return builder.node("Cast", [scaled], f"{prefix}/float", output=output, to=onnx.TensorProto.FLOAT)


def _numbers(
    builder: GraphBuilder, parts: Sequence[NumericInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    del inputs, files
    names = stacked(builder, [part.name for part in parts], "numeric/stacked")
    return [normalise(builder, names, parts)]


NODES = KindNodes({"numeric": _numbers})
