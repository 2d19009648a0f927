"""The table of how each kind of input becomes nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from models.inputs.graph_builder import GraphBuilder
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles
from models.inputs.records import RECORDS, by_kind

NODES: dict[str, KindNodes[Any]] = {kind: import_module(f"models.inputs.{kind}.nodes").NODES for kind in RECORDS}
"""What the folder of each kind says; the keys of steps see it by a pattern (`models/pipeline/steps.py`)."""


def write_nodes(builder: GraphBuilder, tensor: str, inputs: Sequence[InputRecord], files: LearntFiles) -> list[str]:
    """Write the nodes that make a tensor of the inputs, and return their outputs, in the order of its columns."""
    outputs = []
    for kind, parts in by_kind(inputs).items():
        write = NODES[kind].tensors.get(tensor)
        if write is not None:
            outputs += write(builder, parts, inputs, files)
    return outputs


def opsets_of(inputs: Sequence[InputRecord]) -> list[tuple[str, int]]:
    """Return the domains of operators that the nodes of the inputs need beside ONNX's own, with their versions."""
    return list(dict.fromkeys(opset for part in inputs for opset in NODES[part.kind].opsets))
