"""Normal scores as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from models.inputs.graph_builder import GraphBuilder, stacked
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles
from models.inputs.score.record import ScoreInput


def _numbers(
    builder: GraphBuilder, parts: Sequence[ScoreInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    """Write a sum of lines: each adds what it rises between its knots, or the share of it up to the value.

    Values are (batch, part, line). Parts with fewer knots than others get lines that rise by nothing.
    """
    del inputs, files
    most = max(len(part.knots) for part in parts) - 1
    starts, lengths, rises = (np.full((len(parts), most), blank) for blank in (0.0, 1.0, 0.0))
    for row, part in enumerate(parts):
        lines = len(part.knots) - 1
        starts[row, :lines], lengths[row, :lines] = part.knots[:-1], np.diff(part.knots)
        rises[row, :lines] = np.diff(part.scores)

    def constant(name: str, values: np.ndarray) -> str:
        return builder.constant(f"score/{name}", values)

    last = constant("last", np.array([2], np.int64))
    raw = stacked(builder, [part.of for part in parts], "score/stacked")
    upright = builder.node("Unsqueeze", [raw, last], "score/upright")
    beyond = builder.node("Sub", [upright, constant("starts", starts)], "score/beyond")
    share = builder.node("Div", [beyond, constant("lengths", lengths)], "score/share")
    positive = builder.node("Max", [share, constant("none", np.array(0.0))], "score/positive")
    within = builder.node("Min", [positive, constant("whole", np.array(1.0))], "score/within")
    risen = builder.node("Mul", [within, constant("rises", rises)], "score/risen")
    summed = builder.node("ReduceSum", [risen, last], "score/summed", keepdims=0)
    firsts = constant("firsts", np.array([part.scores[0] for part in parts]))
    scores = builder.node("Add", [summed, firsts], "score/scores")
    missing = builder.node("IsNaN", [raw], "score/missing")
    filled = builder.node("Where", [missing, constant("middle", np.array(0.0)), scores], "score/filled")
    return [builder.node("Cast", [filled], "score/float", to=onnx.TensorProto.FLOAT)]


NODES = KindNodes({"numeric": _numbers})
