"""Graphs of converters in one form: trees in float64, with the decisions of the library, and one output without labels.

Source: ai.onnx.ml: TreeEnsembleClassifier and TreeEnsembleRegressor, versions 1 and 3; TreeEnsemble, version 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.compose
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.errors import TrainingError
from models.inputs.graph_builder import GraphBuilder
from models.inputs.tree_ensemble import LEQ, TreeNode, tree_ensemble
from models.ngrams.graph import ML_DOMAIN

INPUT, OUTPUT = "x", "y"
MODEL = "model/"
"""Names of what the converter wrote begin with it."""
OPSET, ML_OPSET, IR_VERSION = 20, 5, 10
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""The modes of inner nodes, by their numbers in version 5."""
LEAF = "LEAF"
CLASSIFIER, REGRESSOR = "TreeEnsembleClassifier", "TreeEnsembleRegressor"
LINKS: Mapping[str, tuple[str, dict[str, Any]]] = {"LOGISTIC": ("Sigmoid", {}), "SOFTMAX": ("Softmax", {"axis": 1})}
"""The operator of each post transform but NONE."""
PASSED = ("Identity", "ZipMap")
"""Operators at the end of a graph that change no value."""


def in_one_form(model: onnx.ModelProto, width: int, num_classes: int, *, is_score: bool) -> onnx.ModelProto:
    """Return a converter's graph, or that of a team's own function, in the form of `converters.py`.

    Args:
        model: The graph: one input (batch, width), float32 or float64. Its last output are the numbers, or the values
            of classes.
        width: The columns of the input.
        num_classes: The classes of the last output; 0: one number.
        is_score: Whether the output of trees is wanted before its post transform.

    Raises:
        TrainingError: An operator is none of ONNX, or trees are of a form that no known converter writes.
    """
    graph = onnx.compose.add_prefix(model, MODEL).graph
    wanted = _last_output(graph)
    builder = GraphBuilder("", constants=list(graph.initializer))
    type_inside = graph.input[0].type.tensor_type.elem_type
    builder.node("Cast", [INPUT], "input", output=graph.input[0].name, to=type_inside)
    doubles: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in (CLASSIFIER, REGRESSOR):
            is_raw = is_score and wanted in node.output
            doubles[node.output[-1]] = _double_trees(builder, node, type_inside, is_score=is_raw)
        else:
            builder.nodes.append(node)
    last = doubles.get(wanted) or builder.node("Cast", [wanted], "double", to=TensorProto.DOUBLE)
    _append_output(builder, last, num_classes)
    return as_model(builder, width, 1 if num_classes == 2 else max(1, num_classes))


def _last_output(graph: onnx.GraphProto) -> str:
    producers = {name: node for node in graph.node for name in node.output}
    wanted: str = graph.output[-1].name
    while producers[wanted].op_type in PASSED:
        wanted = producers[wanted].input[0]
    return wanted


def _append_output(builder: GraphBuilder, name: str, num_classes: int) -> None:
    if num_classes != 2:
        builder.node("Flatten", [name], "columns", output=OUTPUT, axis=1)
        return
    columns = builder.node("Flatten", [name], "columns", axis=1)
    builder.node(
        "Gather", [columns, builder.constant("second", np.array([-1], np.int64))], "last", output=OUTPUT, axis=1
    )


def as_model(builder: GraphBuilder, width: int, num_outputs: int) -> onnx.ModelProto:
    """Return the nodes that `y` (batch, output) needs as a model with the input `x` (batch, width) float32.

    Raises:
        TrainingError: An operator is none of ONNX.
    """
    nodes = _needed(builder.nodes)
    for node in nodes:
        if node.domain not in ("", ML_DOMAIN):
            raise TrainingError(
                f"export: the converter writes {node.op_type} of {node.domain}, expected operators of ONNX: "
                "take another estimator"
            )
    names = {name for node in nodes for name in _inputs(node)}
    x = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", width])
    y = helper.make_tensor_value_info(OUTPUT, TensorProto.DOUBLE, ["batch", num_outputs])
    constants = [constant for constant in builder.constants if constant.name in names]
    graph = helper.make_graph(nodes, "estimator", [x], [y], constants)
    _renumber(graph, {INPUT: INPUT, OUTPUT: OUTPUT})
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML_DOMAIN, ML_OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _renumber(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Number all names in their order: converters count on through a process, so that equal models have other names."""
    for part in (*graph.input, *graph.output, *graph.initializer):
        part.name = _renamed(part.name, names)
    for node in graph.node:
        node.input[:] = [_renamed(name, names) for name in node.input]
        node.output[:] = [_renamed(name, names) for name in node.output]
        node.name = node.output[0]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                del attribute.g.value_info[:]
                _renumber(attribute.g, names)


def _renamed(name: str, names: dict[str, str]) -> str:
    return names.setdefault(name, f"v{len(names)}") if name else ""


def _needed(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return the nodes that the output follows from, in their order."""
    names, needed = {OUTPUT}, []
    for node in reversed(nodes):
        if names.intersection(node.output):
            names.update(_inputs(node))
            needed.append(node)
    return needed[::-1]


def _inputs(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what a node reads, its inner graphs included."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _inputs(inner)


class _Forest(NamedTuple):
    """Trees whose leaves may have a weight for each of several targets.

    Attributes:
        nodes: The inner nodes of all trees.
        roots: The position of each tree's root in `nodes`.
        trees: The tree of each leaf.
        weights: (leaf, target), float64.
    """

    nodes: list[TreeNode]
    roots: list[int]
    trees: list[int]
    weights: NDArray[np.float64]


def _double_trees(builder: GraphBuilder, node: onnx.NodeProto, type_inside: int, *, is_score: bool) -> str:
    """Append an ensemble of trees in float64, and under the node's names its labels and its values of the type inside.

    Returns:
        The name of the values in float64 (batch, class or target).
    """
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    name = node.output[-1]
    labels = attributes.get("classlabels_int64s", [])
    forest = _forest(attributes, "class" if labels else "target")
    features = builder.node("Cast", [node.input[0]], f"{name}/features", to=TensorProto.DOUBLE)
    values = _sums(builder, forest, features, name)
    base = _numbers(attributes, "base_values")
    if base.size:
        values = builder.node("Add", [values, builder.constant(f"{name}/base", base)], f"{name}/with_base")
    link = attributes.get("post_transform", b"NONE").decode()
    if link != "NONE" and not is_score:
        operator, arguments = LINKS[link]
        values = builder.node(operator, [values], f"{name}/linked", **arguments)
    if forest.weights.shape[1] < len(labels):  # of two classes the leaves have the second alone
        whole = builder.constant(f"{name}/whole", np.array(1.0))
        first = builder.node("Sub", [whole, values], f"{name}/first")
        values = builder.node("Concat", [first, values], f"{name}/both", axis=1)
    builder.node("Cast", [values], f"{name}/of_type", output=name, to=type_inside)
    if labels:
        positions = builder.node("ArgMax", [values], f"{name}/position", axis=1, keepdims=0)
        codes = builder.constant(f"{name}/labels", np.array(labels, np.int64))
        builder.node("Gather", [codes, positions], f"{name}/label", output=node.output[0])
    return values


def _sums(builder: GraphBuilder, forest: _Forest, features: str, name: str) -> str:
    """Append the sum over the trees of their leaves' weights (batch, target).

    A leaf of the operator has one target. Where leaves have several, each tree gives the number of its leaf, with which
    the weights are looked up: a copy of the trees for each target would be as many times as large.
    """
    nodes, roots, trees, weights = forest
    if (np.count_nonzero(weights, axis=1) <= 1).all():
        leaves = [(int(np.argmax(row != 0)), float(row.sum())) for row in weights]
        attributes = tree_ensemble(nodes, leaves, roots, weights.shape[1])
        return builder.node("TreeEnsemble", [features], f"{name}/sums", domain=ML_DOMAIN, **attributes)
    numbers = [(tree, float(leaf)) for leaf, tree in enumerate(trees)]
    attributes = tree_ensemble(nodes, numbers, roots, len(roots))
    reached = builder.node("TreeEnsemble", [features], f"{name}/leaves", domain=ML_DOMAIN, **attributes)
    positions = builder.node("Cast", [reached], f"{name}/positions", to=TensorProto.INT64)
    looked_up = builder.node("Gather", [builder.constant(f"{name}/weights", weights), positions], f"{name}/weighted")
    axis = builder.constant(f"{name}/axis", np.array([1], np.int64))
    return builder.node("ReduceSum", [looked_up, axis], f"{name}/sums", keepdims=0)


def _forest(attributes: Mapping[str, Any], prefix: str) -> _Forest:
    """Return the trees of a node; `prefix`: that of the attributes of its leaves."""
    trees, in_trees = attributes["nodes_treeids"], attributes["nodes_nodeids"]
    positions = {key: position for position, key in enumerate(zip(trees, in_trees, strict=True))}
    is_leaf = np.array([mode.decode() == LEAF for mode in attributes["nodes_modes"]])
    # Version 5 numbers inner nodes and leaves apart.
    number = np.where(is_leaf, np.cumsum(is_leaf), np.cumsum(~is_leaf)) - 1
    inner = np.flatnonzero(~is_leaf).tolist()
    children = {
        side: np.array([positions[trees[i], attributes[f"nodes_{side}nodeids"][i]] for i in inner], np.int64)
        for side in ("true", "false")
    }
    splits = _numbers(attributes, "nodes_values")
    missing = attributes.get("nodes_missing_value_tracks_true") or [0] * len(trees)
    nodes = [
        TreeNode(
            attributes["nodes_featureids"][i],
            float(splits[i]),
            MODES.index(attributes["nodes_modes"][i].decode()),
            missing[i],
            truenodeids=int(number[true]),
            trueleafs=int(is_leaf[true]),
            falsenodeids=int(number[false]),
            falseleafs=int(is_leaf[false]),
        )
        for i, true, false in zip(inner, children["true"], children["false"], strict=True)
    ]
    is_root = np.ones(len(trees), bool)
    is_root[np.concatenate(list(children.values()))] = False
    roots = []
    for position in np.flatnonzero(is_root):
        roots.append(len(nodes) if is_leaf[position] else int(number[position]))
        if is_leaf[position]:  # the operator has no tree without a split
            nodes.append(TreeNode(0, 0.0, LEQ, 0, (), *[int(number[position]), 1] * 2))
    ordinal = {trees[position]: tree for tree, position in enumerate(np.flatnonzero(is_root))}
    leaf_keys = zip(attributes[f"{prefix}_treeids"], attributes[f"{prefix}_nodeids"], strict=True)
    rows = number[[positions[key] for key in leaf_keys]]
    weights = _leaf_weights(attributes, prefix, rows, int(is_leaf.sum()))
    return _Forest(nodes, roots, [ordinal[trees[position]] for position in np.flatnonzero(is_leaf)], weights)


def _leaf_weights(
    attributes: Mapping[str, Any], prefix: str, leaves: NDArray[np.int64], num_leaves: int
) -> NDArray[np.float64]:
    """Return the weights of each leaf (leaf, target); of two classes with weights for one, this one alone."""
    targets = np.array(attributes[f"{prefix}_ids"])
    num_targets = attributes.get("n_targets", len(attributes.get("classlabels_int64s", [])))
    if num_targets == 2 and len(set(targets)) == 1:
        targets, num_targets = np.zeros_like(targets), 1
    weights = np.zeros((num_leaves, num_targets))
    np.add.at(weights, (leaves, targets), _numbers(attributes, f"{prefix}_weights"))
    return weights


def _numbers(attributes: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    tensor = attributes.get(f"{name}_as_tensor")
    return np.asarray(attributes.get(name, ()) if tensor is None else numpy_helper.to_array(tensor), np.float64)
