"""Trees as the columns of the operator TreeEnsemble, in float64. Source: ai.onnx.ml, version 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

LEQ, MEMBER = 0, 6
"""Modes of a node: the value is at most the threshold, or a member of a set."""


@dataclass(slots=True)
class TreeNode:
    """One inner node; the fields but `members` are the operator's columns `nodes_*`."""

    featureids: int
    splits: float
    modes: int
    missing_value_tracks_true: int
    members: tuple[float, ...] = ()
    truenodeids: int = 0
    trueleafs: int = 0
    falsenodeids: int = 0
    falseleafs: int = 0


def tree_ensemble(
    nodes: Sequence[TreeNode], leaves: Sequence[tuple[int, float]], roots: list[int], num_targets: int
) -> dict[str, Any]:
    """Return the attributes of the operator, which sums the leaves of all trees.

    Args:
        nodes: The inner nodes of all trees.
        leaves: Target and weight of each leaf.
        roots: The position of each tree's root in `nodes`.
        num_targets: The width of the output.
    """
    columns = {field.name: [getattr(node, field.name) for node in nodes] for field in fields(TreeNode)}
    members = [member for group in columns.pop("members") for member in group]
    attributes: dict[str, Any] = {
        "n_targets": num_targets,
        "aggregate_function": 1,
        "post_transform": 0,
        "tree_roots": roots,
        **{f"nodes_{name}": values for name, values in columns.items()},
        "nodes_splits": _tensor("splits", columns["splits"], np.float64),
        "nodes_modes": _tensor("modes", columns["modes"], np.uint8),
        "leaf_targetids": [target for target, _ in leaves],
        "leaf_weights": _tensor("weights", [weight for _, weight in leaves], np.float64),
    }
    if members:
        attributes["membership_values"] = _tensor("members", members, np.float64)
    return attributes


def _tensor(name: str, values: list[Any], dtype: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)
