"""Judge a challenger: a pure function from evidence and rules to a verdict, and its replay."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from models.errors import DataError, UsageError
from models.judge.class_recall import class_recalls
from models.judge.comparison import (
    ResampledMetrics,
    Threshold,
    horizon_estimates,
    resample_models,
)
from models.judge.evidence import Evidence
from models.judge.gates import gates_of, number, sample_gate
from models.judge.rivals import against_best, against_champion, margin_of_test_set
from models.judge.slices import judge_slices
from models.judge.verdict import Estimate, Gate, OutputFigures, Verdict
from models.metrics.metrics import Array, Metric, measure, metrics_for
from models.metrics.outputs import by_horizon, output_figures
from models.project_spec import blocks as spec

_OUTPUT_METRICS = ("mae", "rmse", "r2", "roc_auc", "pr_auc", "f1")
"""The metrics that a verdict has of each of several outputs."""


def judge(
    evidence: Evidence,
    rules: spec.Judge,
    metric: Metric,
    good_enough: float | None = None,
    max_latency_ms: float | None = None,
    seed: int = 0,
) -> Verdict:
    """Return the verdict on a challenger, with every number and reason.

    Without a champion the goal and the trivial baseline decide.

    Args:
        evidence: Predictions of all models on the same test examples, and costs.
        rules: The spec's `judge` block.
        metric: The metric of the goal.
        good_enough: The spec's `goal.good_enough`.
        max_latency_ms: The spec's `serve.max_latency_ms`; the lower of this and the judge's own limit counts.
        seed: Seed of the resamples.

    Raises:
        DataError: The arrays cannot be compared, or the metric is undefined on them.
        UsageError: The spec requests McNemar's test for another metric than accuracy.
        UserCodeError: Your own metric raised or returned no finite number.

    Cost: `resamples` x models x (1 + slice columns) x examples; see `make bench`.
    """
    evidence.check()
    if rules.test == "mcnemar" and metric.name != "accuracy":
        raise UsageError(f"judge.test: mcnemar is for accuracy, goal.metric is {metric.name}: use bootstrap")
    limits = [limit for limit in (rules.max_latency_ms, max_latency_ms) if limit is not None]
    bounds = {"good_enough": good_enough, "max_latency_ms": min(limits, default=None)}
    draft = _measured(evidence.weighing if metric.takes_weights else evidence, rules, metric, seed)
    whole = {"unweighted": _unweighted(evidence, rules, metric, seed), "digests": evidence.digests()}
    draft = draft.model_copy(update={**bounds, **whole})
    gates = gates_of(draft)
    decision = "promote" if all(gate.passed for gate in gates) else "keep"
    return draft.model_copy(update={"gates": gates, "decision": decision, "reasons": _reasons(draft, gates)})


class VerdictReplay(NamedTuple):
    """Whether the same evidence gave the same verdict again, and the differences if not."""

    same: bool
    differences: list[str]


def replay(verdict: Verdict, evidence: Evidence, metric: Metric) -> VerdictReplay:
    """Judge the evidence again by the verdict's rules, and compare every number (relative 1e-9) and text.

    Raises:
        DataError: The evidence is not the verdict's own; names the arrays that differ.
    """
    digests = evidence.digests()
    changed = [name for name in verdict.digests.keys() | digests if verdict.digests.get(name) != digests.get(name)]
    if changed:
        raise DataError(f"not the evidence of this verdict: other values in {', '.join(sorted(changed))}")
    again = judge(evidence, verdict.rules, metric, verdict.good_enough, verdict.max_latency_ms, verdict.seed)
    differences = _differences("", verdict.model_dump(mode="json"), again.model_dump(mode="json"))
    return VerdictReplay(not differences, differences)


def _measured(evidence: Evidence, rules: spec.Judge, metric: Metric, seed: int) -> Verdict:
    """Return a verdict with all its numbers and no decision yet."""
    clusters = None if evidence.clusters is None else np.unique(evidence.clusters, return_inverse=True)[1]
    result = resample_models(
        metric, evidence.target, evidence.models_for(metric), rules.resamples, seed, clusters, evidence.weights
    )
    has_champion, has_baseline = evidence.champion is not None, evidence.baseline is not None
    beaten, margin = Threshold(0.0, strict=True), margin_of_test_set(evidence, rules, result)
    draft = Verdict(
        task=evidence.task,
        positive=evidence.positive,
        metric=metric.name,
        direction=metric.direction,
        rules=rules,
        seed=seed,
        num_samples=len(evidence.target),
        num_clusters=None if clusters is None else len(metric.sizes(evidence.target, clusters)),
        challenger_id=evidence.challenger_id,
        champion_id=evidence.champion_id,
        challenger=result.estimate("challenger", rules.confidence),
        champion=result.estimate("champion", rules.confidence) if has_champion else None,
        baseline=result.estimate("baseline", rules.confidence) if has_baseline else None,
        baseline_name=evidence.baseline_name if has_baseline else "",
        references=dict(evidence.references),
        test_set_margin=margin,
        difference=against_champion(evidence, rules, result, rules.margin or margin or 0.0),
        best=against_best(evidence, rules, metric, seed),
        over_baseline=result.difference("baseline", beaten, rules.confidence) if has_baseline else None,
        slices=judge_slices(evidence, rules, metric, seed),
        metrics=_every_metric(evidence, metric, result),
        outputs=_outputs(evidence, rules, metric, seed, clusters),
        classes=class_recalls(evidence, metric, rules.confidence),
        challenger_cost=evidence.challenger_cost,
        champion_cost=evidence.champion_cost,
        parity=evidence.parity,
        copies=evidence.copies,
        single_predictors=dict(evidence.single_predictors),
    )
    # With too few examples the metric may be undefined; then the sample gate gives the reason.
    if sample_gate(draft).passed:
        for prediction in evidence.models.values():
            measure(metric, evidence.target, prediction, evidence.weights)
    return draft


def _unweighted(evidence: Evidence, rules: spec.Judge, metric: Metric, seed: int) -> Estimate | None:
    """Return the challenger's value on all rows, which count alike, as served rows do; None without weights."""
    if evidence.weights is None or not metric.takes_weights:
        return None
    clusters = None if evidence.clusters is None else np.unique(evidence.clusters, return_inverse=True)[1]
    models = {"challenger": evidence.models_for(metric)["challenger"]}
    alike = resample_models(metric, evidence.target, models, rules.resamples, seed, clusters)
    return alike.estimate("challenger", rules.confidence)


def _every_metric(evidence: Evidence, metric: Metric, result: ResampledMetrics) -> dict[str, dict[str, float | None]]:
    values: dict[str, dict[str, float | None]] = {metric.name: dict(result.values)}
    for candidate in metrics_for(evidence.task, evidence.outputs):
        if candidate.name != metric.name:
            predictions = evidence.models_for(candidate)
            values[candidate.name] = {
                name: candidate.value(evidence.target, p, evidence.weights) for name, p in predictions.items()
            }
    return values


def _outputs(
    evidence: Evidence, rules: spec.Judge, metric: Metric, seed: int, clusters: Array | None
) -> list[OutputFigures]:
    """Return the figures of each output, of all models, and of each horizon the goal's metric."""
    goal = horizon_estimates(
        metric,
        evidence.outputs,
        evidence.target,
        evidence.challenger,
        rules.confidence,
        rules.resamples,
        seed,
        clusters,
    )
    figures = {name: _figures(evidence, name) for name in evidence.models}
    horizon_of = {place: name for name, places in by_horizon(evidence.outputs).items() for place in places}
    return [
        OutputFigures(
            name=output.name,
            quantile=output.quantile,
            horizon=horizon_of[place] if output.quantile is not None and output.horizon is not None else None,
            goal=goal.get(horizon_of[place]),
            challenger=figures["challenger"][output.name],
            champion=figures["champion"][output.name] if "champion" in figures else {},
            baseline=figures["baseline"][output.name] if "baseline" in figures else {},
        )
        for place, output in enumerate(evidence.outputs)
    ]


def _figures(evidence: Evidence, model: str) -> dict[str, dict[str, float]]:
    """Return the figures of each output of a model: those of decisions by the model's own."""
    fitting, merged = metrics_for(evidence.task), dict[str, dict[str, float]]()
    for metric in [candidate for candidate in fitting if candidate.name in _OUTPUT_METRICS] or fitting[:1]:
        named = {metric.name: metric.prepare} if metric.name in _OUTPUT_METRICS else {}
        prediction = evidence.models_for(metric)[model]
        figures = output_figures(named, evidence.outputs, evidence.target, prediction, evidence.weights)
        merged = {output: {**merged.get(output, {}), **values} for output, values in figures.items()}
    return merged


def _reasons(draft: Verdict, gates: list[Gate]) -> list[str]:
    """Return a summary sentence, then the reasons of the gates that refused, or of all gates when none did."""
    failed = [gate for gate in gates if not gate.passed]
    now = f"{draft.metric} {number(draft.challenger.value)}"
    if draft.champion is None:
        summary = f"First model, {now}: judged against the goal and the baseline alone"
    else:
        origin = "judge.margin" if draft.rules.margin is not None else "from the test set"
        margin = f" (margin {number(draft.margin)}, {origin})" if draft.margin else ""
        summary = f"Challenger {now} against champion {number(draft.champion.value)}{margin}"
    if failed:
        return [
            f"Not promoted. {summary}. Refused by: {', '.join(gate.name for gate in failed)}.",
            *map(_line, failed),
        ]
    return [f"Promoted. {summary}.", *map(_line, gates)]


def _line(gate: Gate) -> str:
    return f"{gate.name}: {gate.reason}"


def _differences(path: str, before: Any, after: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        return [line for key in keys for line in _differences(f"{path}.{key}", before.get(key), after.get(key))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for place, (old, new) in pairs for line in _differences(f"{path}[{place}]", old, new)]
    if isinstance(before, float) and isinstance(after, float):
        return [] if math.isclose(before, after, rel_tol=1e-9, abs_tol=1e-12) else [_changed(path, before, after)]
    return [] if before == after else [_changed(path, before, after)]


def _changed(path: str, before: Any, after: Any) -> str:
    return f"{path.lstrip('.')}: was {before!r}, is {after!r}"
