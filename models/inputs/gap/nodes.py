"""Gaps as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from models.inputs.gap.record import GapInput
from models.inputs.graph_builder import GraphBuilder, stacked
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles


def _numbers(
    builder: GraphBuilder, parts: Sequence[GapInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    del inputs, files
    raw = stacked(builder, [part.of for part in parts], "gap/stacked")
    missing = builder.node("IsNaN", [raw], "gap/missing")
    return [builder.node("Cast", [missing], "gap/float", to=onnx.TensorProto.FLOAT)]


NODES = KindNodes({"numeric": _numbers})
