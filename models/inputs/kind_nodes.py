"""What each kind of input says of its nodes in the exported graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from models.inputs.graph_builder import GraphBuilder
from models.inputs.record import InputRecord, LearntFiles

Record = TypeVar("Record", bound=InputRecord)
TensorNodes = Callable[[GraphBuilder, Sequence[Record], Sequence[InputRecord], LearntFiles], list[str]]
"""Writes the nodes of all inputs of a kind, from those, all inputs and what was learnt beside; returns the outputs."""


@dataclass(frozen=True)
class KindNodes(Generic[Record]):
    """How one kind of input becomes nodes, operator by operator as its rows are encoded: float64 until the last cast.

    Attributes:
        tensors: By the tensor that it becomes a part of. Outputs are (batch, column); of `categorical` indices
            (batch,), of `image` the whole tensor.
        opsets: Domains of operators with their versions, beside ONNX's own.
    """

    tensors: Mapping[str, TensorNodes[Record]]
    opsets: tuple[tuple[str, int], ...] = ()
