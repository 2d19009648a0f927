"""The comparison with the champion, and with the best champion so far.

A margin of non-inferiority lets each challenger lose a little. Judged against its predecessor alone, twenty of them
lose twenty times as much. So the best champion so far stays the reference: the last version that was shown to be better
than the reference before it. A version that loses no more than the margin to it may serve, and does not replace it.

Source: bio-creep, D'Agostino, Massaro and Sullivan (2003), Statistics in Medicine 22(2).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.judge.comparison import (
    POWER,
    POWER_OF_BEST,
    ResampledMetrics,
    Threshold,
    mcnemar_difference,
    mcnemar_resolvable_loss,
    resample_models,
)
from models.judge.evidence import Evidence
from models.judge.gates import LEAST_CLUSTERS
from models.judge.verdict import BestChampion, Difference
from models.metrics.metrics import Metric
from models.project_spec import blocks as spec


def margin_of_test_set(
    evidence: Evidence, rules: spec.Judge, result: ResampledMetrics, power: float = POWER
) -> float | None:
    """Return the margin of non-inferiority that the test set can resolve; None if the rules need none."""
    if evidence.champion is None or rules.margin is not None or rules.mode == "superiority":
        return None
    if _counts_examples(evidence, rules):
        decided = evidence.models_for(result.metric)
        models = decided["challenger"], decided["champion"]
        return mcnemar_resolvable_loss(evidence.target, *models, rules.confidence, power)
    return result.resolvable_loss("champion", rules.confidence, power)


def against_champion(
    evidence: Evidence, rules: spec.Judge, result: ResampledMetrics, margin: float
) -> Difference | None:
    """Return challenger minus champion, tested by the rules; None without a champion."""
    if evidence.champion is None:
        return None
    strict = rules.mode == "superiority"
    threshold = Threshold(margin if strict else -margin, strict)
    if _counts_examples(evidence, rules):
        decided = evidence.models_for(result.metric)
        models = decided["challenger"], decided["champion"]
        return mcnemar_difference(evidence.target, *models, threshold, rules.confidence)
    return result.difference("champion", threshold, rules.confidence)


def against_best(evidence: Evidence, rules: spec.Judge, metric: Metric, seed: int = 0) -> BestChampion | None:
    """Return the comparison with the best champion so far, by the rules for the champion, on the rows that count.

    None without one, in the mode superiority, which cannot creep, and where too few rows count for a verdict.

    Cost: one more bootstrap of two models.
    """
    if evidence.best is None or rules.mode == "superiority":
        return None
    chosen = np.ones(len(evidence.target), dtype=bool) if evidence.best_counts is None else evidence.best_counts
    thresholds = {**evidence.thresholds, "champion": evidence.thresholds.get("best", 0.5)}
    pair = replace(evidence, champion=evidence.best, baseline=None, slices={}, thresholds=thresholds).only(chosen)
    clusters = None if pair.clusters is None else np.unique(pair.clusters, return_inverse=True)[1]
    if len(pair.target) < rules.min_samples or (clusters is not None and len(np.unique(clusters)) < LEAST_CLUSTERS):
        return None
    models = pair.models_for(metric)
    result = resample_models(metric, pair.target, models, rules.resamples, seed, clusters, pair.weights)
    margin = margin_of_test_set(pair, rules, result, POWER_OF_BEST)
    difference = against_champion(pair, rules, result, rules.margin or margin or 0.0)
    if difference is None or not np.isfinite(result.values["champion"]):
        return None
    return BestChampion(
        id=evidence.best_id or "",
        num_samples=len(pair.target),
        estimate=result.estimate("champion", rules.confidence),
        difference=difference,
        test_set_margin=margin,
    )


def _counts_examples(evidence: Evidence, rules: spec.Judge) -> bool:
    """Return whether McNemar's test decides: of examples that depend on each other the bootstrap of units does."""
    return rules.test == "mcnemar" and evidence.clusters is None
