"""What the card says of a model's decision and quantiles, and of the rows that they were chosen on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.kinds.task import PerTask

JUDGED_ON = {False: "validation rows", True: "training and validation rows, by the models of other folds"}
"""The rows on which calibration, decision and quantiles were chosen, by whether a bag is served."""


def decision(head: dict[str, Any], preparation: Preparation, is_named: bool, judged_on: str) -> dict[str, Any]:
    """Return how probabilities become a label, with their reliability on held-out validation rows.

    Args:
        head: The record of the class head.
        preparation: The version's: its classes or labels.
        is_named: Whether the spec names the positive one of two classes.
        judged_on: The rows of which the head is, in words.
    """
    if not head:
        return {}
    target = preparation.target
    words = f"calibrated on {judged_on}" if head.get("calibrated") else "as the model gives them"
    labels = {"log loss": "log_loss", "expected calibration error": "ece"}
    measured = {
        f"{name} on {judged_on}, {when}": float(f"{head[key + suffix]:.4g}")
        for name, key in labels.items()
        for when, suffix in (("as trained", ""), ("calibrated on the other folds", "_after"))
        if key in head
    }
    facts = {"probabilities": words, **measured}
    return {**facts, **_DECISIONS[preparation.task](head, target, is_named)}


def _positive(head: dict[str, Any], target: TargetEncoding, is_named: bool) -> dict[str, Any]:
    source = "goal.positive" if is_named else "the later of the two: goal.positive is not set"
    threshold = {f"threshold of {target.positive}": float(f"{head['threshold']:.4g}")}
    return {"positive class": f"{target.positive} ({source})", **threshold}


def _class_scores(head: dict[str, Any], target: TargetEncoding, is_named: bool) -> dict[str, Any]:
    rule = head.get("decision", {})
    if not rule:
        return {"label": "the likeliest class"}
    pairs = zip(target.class_names, rule["score_weights"], rule["score_offsets"], strict=True)
    scores = {f"score of {name}": f"{weight:.4g} x probability {offset:+.4g}" for name, weight, offset in pairs}
    return {"label": "the class with the highest score, for the goal", **scores}


def _label_thresholds(head: dict[str, Any], target: TargetEncoding, is_named: bool) -> dict[str, Any]:
    names = [output.name for output in target.outputs]
    thresholds = head.get("decision", {}).get("thresholds") or [0.5] * len(names)
    return {
        f"threshold of {name}": float(f"{threshold:.4g}") for name, threshold in zip(names, thresholds, strict=True)
    }


def _nothing_decided(head: dict[str, Any], target: TargetEncoding, is_named: bool) -> dict[str, Any]:
    return {}


_DECISIONS: PerTask[Callable[[dict[str, Any], TargetEncoding, bool], dict[str, Any]]] = {
    "binary": _positive,
    "multiclass": _class_scores,
    "multilabel": _label_thresholds,
    "regression": _nothing_decided,
    "quantile": _nothing_decided,
    "language": _nothing_decided,
    "ranking": _nothing_decided,
}


def quantiles(shifted: dict[str, Any], judged_on: str) -> dict[str, Any]:
    """Return how far the trained quantiles were from the shares that they state, on the rows that shifted them."""
    if not shifted:
        return {}
    shares = zip(shifted["names"], shifted["levels"], shifted["share_below"], strict=True)
    below = {
        f"{name}, as trained": f"{share:.1%} of true values below, states {level:.3g}" for name, level, share in shares
    }
    return {**below, "shifted by its errors on": f"{shifted['num_examples']:,} {judged_on}"}
