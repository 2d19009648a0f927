"""A graph builder: nodes and constants of one part of an ONNX graph, under one prefix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

CORE_PREFIX = "core/"
"""Names of what the net reads and of what it is made of begin with it."""


@dataclass
class GraphBuilder:
    """Nodes and constants whose names start with `prefix`, so that parts of a graph join without name clashes.

    The caller chooses the names; they contain no counter or time: the same model always has the same bytes.
    """

    prefix: str
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def node(self, op: str, inputs: list[str], name: str, *, output: str = "", **attributes: Any) -> str:
        """Append one operator with one output; returns its name, `prefix + name` unless `output` is given."""
        output = output or self.prefix + name
        self.nodes.append(helper.make_node(op, inputs, [output], name=self.prefix + name, **attributes))
        return output

    def constant(self, name: str, value: np.ndarray) -> str:
        """Append one constant tensor; returns its name, `prefix + name`."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), self.prefix + name))
        return self.prefix + name


def stacked(builder: GraphBuilder, names: list[str], prefix: str, output: str = "") -> str:
    """Stack columns (batch,) into (batch, column); the runtime refuses columns of different lengths."""
    axis = builder.constant(f"{prefix}/axis", np.array([1], np.int64))
    upright = [builder.node("Unsqueeze", [name, axis], f"{prefix}/{position}") for position, name in enumerate(names)]
    return builder.node("Concat", upright, prefix, output=output, axis=1)
