"""LightGBM's trees as ONNX nodes that take exactly the same decisions as LightGBM.

Thresholds, inputs and sums stay float64, as in LightGBM: a value that equals a threshold goes the same way.
Source: ai.onnx.ml TreeEnsemble, version 5; LightGBM's Tree::NumericalDecision and Tree::CategoricalDecision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import TrainingError
from models.export.feature_nodes import corrected, feature_nodes
from models.inputs.graph_builder import GraphBuilder
from models.inputs.tree_ensemble import LEQ, MEMBER, TreeNode, tree_ensemble
from models.ngrams.graph import ML_DOMAIN
from models.training.boosters import Boosters
from models.training.job import TrainingJob

ZERO = float(np.float32(1e-35))
"""LightGBM treats smaller numbers as zero before it decides. Source: its kZeroThreshold."""
CUSTOM = "custom"
"""Trees of an objective that is no part of LightGBM: their sums are the standardised values."""
OBJECTIVES = (
    "binary", "multiclass", CUSTOM, "regression", "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank"
)  # fmt: skip
"""Those whose sums of leaves are logits, or the standardised values."""


def trees_graphs(jobs: Sequence[TrainingJob], preparation: Preparation) -> list[tuple[GraphBuilder, str]]:
    """Return for each of the finished jobs the nodes of its trees, and the name of their output."""
    return [trees_part(job.read_weights().decode(), preparation) for job in jobs]


def trees_part(text: str, preparation: Preparation) -> tuple[GraphBuilder, str]:
    """Return the trees' nodes and the name of their output (batch, num_outputs): logits or standardised values.

    Args:
        text: The output of `Boosters.to_text`; its features: numeric columns, then categorical; of series
            those of `models/nets/window_features.py`.
        preparation: The preparation schema of the model.

    Raises:
        TrainingError: The export does not know the output of this objective or kind of tree.
    """
    dumps = [booster.dump_model() for booster in Boosters.of_text(text).boosters]
    factor = _logit_factor(dumps[0])
    builder, features, correction = feature_nodes(preparation)
    attributes = _ensemble(*_targeted(dumps))
    raw = builder.node("TreeEnsemble", [features], "trees", domain=ML_DOMAIN, **attributes)
    if factor == 1.0:
        return builder, corrected(builder, raw, correction, "trees")
    scale = builder.constant("factor", np.array(factor, np.float64))
    return builder, builder.node("Mul", [raw, scale], "logit")


def _logit_factor(dump: dict[str, Any]) -> float:
    """Return the factor that turns a sum of leaves into a logit (or the standardised value)."""
    words = dump.get("objective", CUSTOM).split()
    settings = dict(word.split(":", 1) for word in words[1:] if ":" in word)
    if dump["average_output"]:
        raise TrainingError("export: got averaged trees (boosting rf), expected boosted ones (gbdt)")
    if words[0] not in OBJECTIVES or "sqrt" in words:
        names = ", ".join(OBJECTIVES)
        raise TrainingError(f"export: got objective {dump['objective']!r}, expected one of {names}: train with such")
    return float(settings.get("sigmoid", 1.0))


def _node(split: dict[str, Any]) -> TreeNode:
    """Return a split of LightGBM as a node whose children are not known yet."""
    feature = int(split["split_feature"])
    if split["decision_type"] == "==":
        # The operator reads the sets in the order of the nodes that use them; a NaN ends each set.
        return TreeNode(feature, 0.0, MEMBER, 0, (*map(float, str(split["threshold"]).split("||")), float("nan")))
    threshold = float(split["threshold"])
    if split["missing_type"] == "Zero":
        raise TrainingError("export: the trees take zero for missing: train without zero_as_missing")
    if -ZERO <= threshold < 0:
        threshold = float(np.nextafter(-ZERO, -np.inf))
    # Trees that saw no missing value in training treat a missing value as zero.
    goes_left = split["default_left"] if split["missing_type"] == "NaN" else threshold >= 0.0
    return TreeNode(feature, threshold, LEQ, int(goes_left))


def _targeted(dumps: list[dict[str, Any]]) -> tuple[list[tuple[dict[str, Any], int]], int]:
    """Return the root of each tree with the number of its output, and the number of outputs.

    One booster has a tree for each class in each round; of several boosters each has the trees of one output.
    """
    per_round = int(dumps[0]["num_tree_per_iteration"])
    trees = [
        (tree["tree_structure"], index if len(dumps) > 1 else int(tree["tree_index"]) % per_round)
        for index, dump in enumerate(dumps)
        for tree in dump["tree_info"]
    ]
    return trees, max(len(dumps), per_round)


def _ensemble(trees: list[tuple[dict[str, Any], int]], num_targets: int) -> dict[str, Any]:
    """Return the attributes of the TreeEnsemble operator."""
    nodes: list[TreeNode] = []
    leaves: list[tuple[int, float]] = []
    roots = []
    for root, target in trees:
        roots.append(len(nodes))
        _grow(nodes, leaves, root, target)
    return tree_ensemble(nodes, leaves, roots, num_targets)


def _grow(nodes: list[TreeNode], leaves: list[tuple[int, float]], root: dict[str, Any], target: int) -> None:
    """Append one tree, its root first, then left before right; it uses a stack, because trees may be very deep."""
    if "split_feature" not in root:  # the operator has no tree without a split
        both = {"left_child": root, "right_child": root}
        root = {"split_feature": 0, "threshold": 0.0, "decision_type": "<=", "missing_type": "None", **both}
    waiting: list[tuple[dict[str, Any], TreeNode | None, bool]] = [(root, None, False)]
    while waiting:
        part, parent, is_left = waiting.pop()
        is_leaf = "split_feature" not in part
        if is_leaf:
            leaves.append((target, float(part["leaf_value"])))
        else:
            nodes.append(_node(part))
            waiting += [(part["right_child"], nodes[-1], False), (part["left_child"], nodes[-1], True)]
        position = len(leaves if is_leaf else nodes) - 1
        if parent and is_left:
            parent.truenodeids, parent.trueleafs = position, int(is_leaf)
        elif parent:
            parent.falsenodeids, parent.falseleafs = position, int(is_leaf)
