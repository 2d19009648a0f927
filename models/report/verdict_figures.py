"""The figures of a verdict, by name: those of every verdict, and those of its task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from models.data.target_encoding import TargetEncoding
from models.judge.evidence import Evidence
from models.judge.verdict import Verdict
from models.kinds.task import PerTask
from models.metrics.evaluator import Array
from models.report import figures, output_figures


def verdict_figures(evidence: Evidence, verdict: Verdict, target: TargetEncoding) -> dict[str, bytes]:
    """Return the figures as SVG.

    Args:
        evidence: Targets and predictions of the test examples.
        verdict: Its difference, slices and references are drawn.
        target: The classes or the outputs.
    """
    evidence, pictures = evidence.weighing, {"difference": figures.difference(verdict)}
    if evidence.weights is not None and evidence.weights.any():  # counts add up to the examples
        evidence = replace(evidence, weights=evidence.weights / evidence.weights.mean())
    if verdict.slices:
        pictures["slices"] = figures.slices(verdict)
    return {**pictures, **_OF_TASK[evidence.task](evidence, verdict, target)}


def _models(evidence: Evidence) -> dict[str, Array]:
    return {name: values for name, values in evidence.models.items() if name != "baseline"}


def _of_classes(evidence: Evidence, verdict: Verdict, target: TargetEncoding) -> dict[str, bytes]:
    classes, models = target.class_names, _models(evidence)
    return {
        "confusion": figures.confusion_matrix(evidence.target, evidence.decided, classes, evidence.weights),
        "roc-pr": figures.roc_and_pr(evidence.target, models, classes, evidence.weights),
        "calibration": figures.calibration(evidence.target, models, evidence.weights),
        "scores": figures.scores(evidence.target, evidence.challenger, classes, target.name, evidence.weights),
    }


def _of_labels(evidence: Evidence, verdict: Verdict, target: TargetEncoding) -> dict[str, bytes]:
    return {"labels": output_figures.labels(evidence.target, evidence.challenger, target.names, evidence.weights)}


def _of_numbers(evidence: Evidence, verdict: Verdict, target: TargetEncoding) -> dict[str, bytes]:
    if target.outputs:
        return {"targets": output_figures.targets(evidence.target, evidence.challenger, target.names)}
    return {
        "residuals": figures.residuals(evidence.target, evidence.challenger, target.name, evidence.weights),
        "scores": figures.scores(evidence.target, evidence.challenger, [], target.name, evidence.weights),
    }


def _of_quantiles(evidence: Evidence, verdict: Verdict, target: TargetEncoding) -> dict[str, bytes]:
    levels = [output.quantile or 0.0 for output in target.outputs[: target.num_quantiles]]
    targets, predictions = (values.reshape(-1, len(levels)) for values in (evidence.target, evidence.challenger))
    return {"quantiles": output_figures.quantiles(targets, predictions, levels, evidence.weights)}


def _of_texts(evidence: Evidence, verdict: Verdict, target: TargetEncoding) -> dict[str, bytes]:
    return {"context": figures.bits_by_position(_models(evidence), verdict.references)}


def _of_ranks(evidence: Evidence, verdict: Verdict, target: TargetEncoding) -> dict[str, bytes]:
    return {"places": output_figures.places(evidence.target, _models(evidence), evidence.weights)}


_OF_TASK: PerTask[Callable[[Evidence, Verdict, TargetEncoding], dict[str, bytes]]] = {
    "binary": _of_classes,
    "multiclass": _of_classes,
    "multilabel": _of_labels,
    "regression": _of_numbers,
    "quantile": _of_quantiles,
    "language": _of_texts,
    "ranking": _of_ranks,
}
