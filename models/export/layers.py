"""Access to the net's part of an exported graph, for the code that makes smaller variants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from models.inputs.graph_builder import CORE_PREFIX

FLOAT = onnx.TensorProto.FLOAT


class Layers:
    """The nodes and constants of a graph whose names begin with `core/`; preparation and head stay unchanged."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = {
            constant.name: constant for constant in self.graph.initializer if constant.name.startswith(CORE_PREFIX)
        }

    def nodes(self, *kinds: str) -> Iterator[onnx.NodeProto]:
        """Yield the net's nodes; with `kinds`, only those of these operators."""
        for node in self.graph.node:
            if node.name.startswith(CORE_PREFIX) and (not kinds or node.op_type in kinds):
                yield node

    def array(self, name: str) -> np.ndarray | None:
        """Return a constant's value; None if the name is no constant of the net."""
        constant = self.constants.get(name)
        return None if constant is None else numpy_helper.to_array(constant)

    def put(self, name: str, value: np.ndarray) -> None:
        """Set the value of a constant; a constant that does not exist is created."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        if name in self.constants:
            self.constants[name].CopyFrom(tensor)
        else:
            self.graph.initializer.append(tensor)
            self.constants[name] = self.graph.initializer[-1]

    def drop_unread(self) -> None:
        """Remove the net's constants that no node reads."""
        read = {name for node in self.graph.node for name in node.input}
        read_constants = [
            constant
            for constant in self.graph.initializer
            if constant.name in read or constant.name not in self.constants
        ]
        del self.graph.initializer[:]
        self.graph.initializer.extend(read_constants)
        self.constants = {
            constant.name: constant for constant in self.graph.initializer if constant.name.startswith(CORE_PREFIX)
        }


def is_upright(node: onnx.NodeProto) -> bool:
    """Return True if a Gemm's weights are (output, input)."""
    return any(attribute.name == "transB" and attribute.i for attribute in node.attribute)


def is_plain(node: onnx.NodeProto) -> bool:
    """Return True if a dense layer is a product and a sum without further factors."""
    odd = {
        attribute.name: onnx.helper.get_attribute_value(attribute)
        for attribute in node.attribute
        if attribute.name != "transB"
    }
    return not odd.get("transA") and odd.get("alpha", 1.0) == 1.0 and odd.get("beta", 1.0) == 1.0
