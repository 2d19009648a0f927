"""LightGBM's trees as ONNX nodes that take exactly the same decisions as LightGBM.

Thresholds, inputs and sums stay float64, as in LightGBM: a value that equals a threshold goes the same way.
Source: ai.onnx.ml TreeEnsemble, version 5; LightGBM's Tree::NumericalDecision and Tree::CategoricalDecision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from models.data.preparation import Preparation
from models.errors import TrainingError
from models.export.graph_builder import ML_DOMAIN, GraphBuilder
from models.export.preparation_graph import CORE_PREFIX

LEQ, MEMBER = 0, 6
ZERO = float(np.float32(1e-35))
"""LightGBM treats smaller numbers as zero before it decides. Source: its kZeroThreshold."""
IDENTITY = ("regression", "regression_l1", "huber", "fair", "quantile", "mape")


def trees_part(text: str, preparation: Preparation) -> tuple[GraphBuilder, str]:
    """Return the trees' nodes and the name of their output (batch, num_outputs): logits or standardised values.

    Args:
        text: The output of `Booster.save_model`; its features: numeric columns, then categorical.
        preparation: The preparation schema of the model.

    Raises:
        TrainingError: The export does not know the output of this objective or kind of tree.
    """
    import lightgbm

    dump = lightgbm.Booster(model_str=text).dump_model()
    factor = _logit_factor(dump)
    builder = GraphBuilder(CORE_PREFIX)
    features = _features(builder, preparation)
    attributes = _ensemble(dump["tree_info"], int(dump["num_tree_per_iteration"]))
    raw = builder.node("TreeEnsemble", [features], "trees", domain=ML_DOMAIN, **attributes)
    if factor == 1.0:
        return builder, raw
    scale = builder.constant("factor", np.array(factor, np.float64))
    return builder, builder.node("Mul", [raw, scale], "logit")


def _features(builder: GraphBuilder, preparation: Preparation) -> str:
    names = [("numeric", preparation.numeric), ("categorical", preparation.categorical)]
    doubles = [
        builder.node("Cast", [CORE_PREFIX + name], f"{name}_double", to=onnx.TensorProto.DOUBLE)
        for name, parts in names
        if parts
    ]
    return builder.node("Concat", doubles, "features", axis=1)


def _logit_factor(dump: dict[str, Any]) -> float:
    """Return the factor that turns a sum of leaves into a logit (or the standardised value)."""
    words = dump["objective"].split()
    settings = dict(word.split(":", 1) for word in words[1:] if ":" in word)
    if dump["average_output"]:
        raise TrainingError("export: got averaged trees (boosting rf), expected boosted ones (gbdt)")
    if words[0] == "binary":
        return float(settings["sigmoid"])
    if words[0] == "multiclass" or (words[0] in IDENTITY and "sqrt" not in words):
        return 1.0
    known = ", ".join(("binary", "multiclass", *IDENTITY))
    raise TrainingError(f"export: got objective {dump['objective']!r}, expected one of {known}: train with such")


@dataclass
class _Table:
    """The node and leaf columns of a TreeEnsemble under construction."""

    features: list[int] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    missing_goes_left: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    left_is_leaf: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    right_is_leaf: list[int] = field(default_factory=list)
    members: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)

    def leaf(self, value: float, target: int) -> int:
        """Append a leaf; returns its position."""
        self.weights.append(value)
        self.targets.append(target)
        return len(self.weights) - 1

    def split(self, node: dict[str, Any]) -> int:
        """Append an inner node whose children are not known yet; returns its position."""
        threshold, mode, missing = _decision(node)
        if mode == MEMBER:
            # The operator reads the sets in the order of the nodes that use them; a NaN ends each set.
            self.members += [*threshold, float("nan")]
        self.features.append(int(node["split_feature"]))
        self.splits.append(0.0 if mode == MEMBER else threshold[0])
        self.modes.append(mode)
        self.missing_goes_left.append(missing)
        for column in (self.left, self.left_is_leaf, self.right, self.right_is_leaf):
            column.append(0)
        return len(self.features) - 1


def _decision(node: dict[str, Any]) -> tuple[list[float], int, int]:
    """Return (threshold or members, mode, 1 if NaN goes left) of an inner node."""
    if node["decision_type"] == "==":
        return [float(member) for member in str(node["threshold"]).split("||")], MEMBER, 0
    threshold = float(node["threshold"])
    if node["missing_type"] == "Zero":
        raise TrainingError("export: the trees take zero for missing: train without zero_as_missing")
    if -ZERO <= threshold < 0:
        threshold = float(np.nextafter(-ZERO, -np.inf))
    # Trees that saw no missing value in training treat a missing value as zero.
    left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0.0
    return [threshold], LEQ, int(left)


def _ensemble(trees: list[dict[str, Any]], num_targets: int) -> dict[str, Any]:
    """Return the attributes of the TreeEnsemble operator."""
    table, roots = _Table(), []
    for tree in trees:
        roots.append(len(table.features))
        _grow(table, tree["tree_structure"], int(tree["tree_index"]) % num_targets)
    attributes: dict[str, Any] = {
        "n_targets": num_targets,
        "aggregate_function": 1,
        "post_transform": 0,
        "tree_roots": roots,
        "nodes_featureids": table.features,
        "nodes_splits": _tensor("splits", table.splits, np.float64),
        "nodes_modes": _tensor("modes", table.modes, np.uint8),
        "nodes_missing_value_tracks_true": table.missing_goes_left,
        "nodes_truenodeids": table.left,
        "nodes_trueleafs": table.left_is_leaf,
        "nodes_falsenodeids": table.right,
        "nodes_falseleafs": table.right_is_leaf,
        "leaf_targetids": table.targets,
        "leaf_weights": _tensor("weights", table.weights, np.float64),
    }
    if table.members:
        attributes["membership_values"] = _tensor("members", table.members, np.float64)
    return attributes


def _grow(table: _Table, root: dict[str, Any], target: int) -> None:
    """Append one tree, its root first, then left before right; it uses a stack, because trees may be very deep."""
    if "split_feature" not in root:
        leaf = table.leaf(float(root["leaf_value"]), target)
        root = {"split_feature": 0, "threshold": 0.0, "decision_type": "<=", "missing_type": "None"}
        only = table.split(root)
        table.left[only] = table.right[only] = leaf
        table.left_is_leaf[only] = table.right_is_leaf[only] = 1
        return
    waiting = [(root, -1, True)]
    while waiting:
        node, parent, is_left = waiting.pop()
        is_leaf = "split_feature" not in node
        position = table.leaf(float(node["leaf_value"]), target) if is_leaf else table.split(node)
        if parent >= 0:
            side, flags = (table.left, table.left_is_leaf) if is_left else (table.right, table.right_is_leaf)
            side[parent], flags[parent] = position, int(is_leaf)
        if not is_leaf:
            waiting += [(node["right_child"], position, False), (node["left_child"], position, True)]


def _tensor(name: str, values: list[Any], dtype: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)
