"""The weighted mean of an ensemble's members as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx

from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder
from models.kinds.task import TASKS, PerLink, Task
from models.training.ensemble import TINY

_NAMES_INSIDE = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


class MemberPart(NamedTuple):
    """A member's nodes, the name of their output (batch, num_outputs), its family and its weight."""

    builder: GraphBuilder
    output: str
    name: str
    weight: float


def ensemble_part(members: list[MemberPart], task: Task) -> tuple[GraphBuilder, str]:
    """Return the nodes of all members and of their mean, as `combined` of models/training/ensemble.py reckons it.

    Args:
        members: Each reads the same inputs; the names that it makes get its family as a prefix.
        task: The task of all members.
    """
    whole, weighted = GraphBuilder(CORE_PREFIX), []
    link = LINKS[TASKS[task].link]
    for member in members:
        prefix = f"{CORE_PREFIX}{member.name}/"
        rename = _renamed(member.builder, prefix)
        whole.nodes += member.builder.nodes
        whole.constants += member.builder.constants
        mean_builder = GraphBuilder(f"{prefix}mean/")
        double = mean_builder.node("Cast", [rename(member.output)], "double", to=onnx.TensorProto.DOUBLE)
        form = link.averaged(mean_builder, double)
        weighted.append(
            mean_builder.node("Mul", [form, mean_builder.constant("weight", np.array(member.weight))], "weighted")
        )
        whole.nodes += mean_builder.nodes
        whole.constants += mean_builder.constants
    return whole, link.output(whole, whole.node("Sum", weighted, "mean"))


class LinkNodes(NamedTuple):
    """What the mean of members is of, as nodes: `averaged` of an output of a member, and `output` of the mean.

    They are `averaged` and `output_of` of models/training/ensemble.py.
    """

    averaged: Callable[[GraphBuilder, str], str]
    output: Callable[[GraphBuilder, str], str]


def _chances_of_logit(builder: GraphBuilder, logit: str) -> str:
    """Return the name of the probabilities of 0 and 1 (batch, output, 2)."""
    last = builder.constant("last", np.array([-1], np.int64))
    column = builder.node("Unsqueeze", [logit, last], "logit")
    zero = builder.node("Sub", [column, column], "zero")
    both = builder.node("Concat", [zero, column], "both", axis=-1)
    return builder.node("Softmax", [both], "shares", axis=-1)


def _logit_of_chances(builder: GraphBuilder, mean: str) -> str:
    logits = _logarithms(builder, mean)
    signed = builder.node("Mul", [logits, builder.constant("mean/signs", np.array([-1.0, 1.0]))], "mean/signed")
    last = builder.constant("mean/last", np.array([-1], np.int64))
    return builder.node("ReduceSum", [signed, last], "mean/output", keepdims=0)


def _shares(builder: GraphBuilder, logits: str) -> str:
    return builder.node("Softmax", [logits], "shares", axis=1)


def _logarithms(builder: GraphBuilder, mean: str) -> str:
    tiny = builder.constant("mean/least", np.array(TINY))
    return builder.node("Log", [builder.node("Max", [mean, tiny], "mean/above")], "mean/logits")


def _same(builder: GraphBuilder, values: str) -> str:
    del builder
    return values


LINKS: PerLink[LinkNodes] = {
    "logistic": LinkNodes(_chances_of_logit, _logit_of_chances),
    "softmax": LinkNodes(_shares, _logarithms),
    "identity": LinkNodes(_same, _same),
    "text": LinkNodes(_same, _same),
}


def _renamed(builder: GraphBuilder, prefix: str) -> Callable[[str], str]:
    """Give all names that the part makes itself another prefix, in place; return the new name of an old one."""
    outputs = {name for node in builder.nodes for name in node.output if name}
    outputs |= {constant.name for constant in builder.constants}

    def rename(name: str) -> str:
        return prefix + name.removeprefix(CORE_PREFIX) if name in outputs else name

    for constant in builder.constants:
        constant.name = rename(constant.name)
    for node in builder.nodes:
        _rename(node, rename)
        node.name = prefix + node.name.removeprefix(CORE_PREFIX)
    return rename


def _rename(node: onnx.NodeProto, rename: Callable[[str], str]) -> None:
    """Rename what a node reads and writes, also in the graphs that it holds, which see the names around them."""
    node.input[:] = [rename(name) for name in node.input]
    node.output[:] = [rename(name) for name in node.output]
    for attribute in node.attribute:
        if attribute.type in _NAMES_INSIDE:
            for graph in (attribute.g, *attribute.graphs):
                for inner in graph.node:
                    _rename(inner, rename)
                for port in graph.output:
                    port.name = rename(port.name)
