"""Normal scores as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from models.inputs.graph_builder import GraphBuilder, stacked
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles
from models.inputs.score.record import ScoreInput
from models.inputs.tree_ensemble import LEQ, TreeNode, tree_ensemble
from models.ngrams.graph import ML_DOMAIN


def _numbers(
    builder: GraphBuilder, parts: Sequence[ScoreInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    """Write the straight lines between the knots of each part; a tree finds the line of a value.

    A line is flat before the first knot and after the last. Nothing is larger than (batch, part): a comparison with all
    knots of a thousand columns would take gigabytes.
    """
    del inputs, files
    numbers = np.cumsum([0, *(len(part.knots) + 1 for part in parts)])[:-1]
    starts = np.concatenate([[part.knots[0], *part.knots] for part in parts])
    firsts = np.concatenate([[part.scores[0], *part.scores] for part in parts])
    slopes = np.concatenate([[0.0, *np.diff(part.scores) / np.diff(part.knots), 0.0] for part in parts])

    def chosen(name: str, values: np.ndarray) -> str:
        return builder.node("Gather", [builder.constant(f"score/{name}/all", values), line], f"score/{name}", axis=0)

    raw = stacked(builder, [part.of for part in parts], "score/stacked")
    reached = builder.node("TreeEnsemble", [raw], "score/reached", domain=ML_DOMAIN, **_line_trees(parts))
    line_of_part = builder.node("Cast", [reached], "score/line_of_part", to=onnx.TensorProto.INT64)
    line = builder.node("Add", [line_of_part, builder.constant("score/numbers", numbers)], "score/line")
    beyond = builder.node("Sub", [raw, chosen("starts", starts)], "score/beyond")
    risen = builder.node("Mul", [beyond, chosen("slopes", slopes)], "score/risen")
    scores = builder.node("Add", [risen, chosen("firsts", firsts)], "score/scores")
    missing = builder.node("IsNaN", [raw], "score/missing")
    filled = builder.node("Where", [missing, builder.constant("score/middle", np.array(0.0)), scores], "score/filled")
    return [builder.node("Cast", [filled], "score/float", to=onnx.TensorProto.FLOAT)]


def _line_trees(parts: Sequence[ScoreInput]) -> dict[str, Any]:
    """Return the trees that find the number of a value's line, by halves: before the first knot it is 0."""
    nodes: list[TreeNode] = []
    leaves: list[tuple[int, float]] = []

    def grow(target: int, knots: Sequence[float], first: int, last: int) -> tuple[int, int]:
        """Append the tree of some lines; return its position, and 1 if it is a leaf."""
        if first == last:
            leaves.append((target, float(first)))
            return len(leaves) - 1, 1
        middle = (first + last) // 2
        node, position = TreeNode(target, knots[middle], LEQ, 0), len(nodes)
        nodes.append(node)
        node.truenodeids, node.trueleafs = grow(target, knots, first, middle)
        node.falsenodeids, node.falseleafs = grow(target, knots, middle + 1, last)
        return position, 0

    roots = [grow(target, part.knots, 0, len(part.knots))[0] for target, part in enumerate(parts)]
    return tree_ensemble(nodes, leaves, roots, len(parts))


NODES = KindNodes({"numeric": _numbers})
