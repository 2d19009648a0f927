"""Comparison by slice: each value of each slice column is tested by itself, with a correction for their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from models.judge.comparison import ResampledMetrics, Threshold, resample_models
from models.judge.evidence import Evidence, as_text
from models.judge.gates import LEAST_CLUSTERS
from models.judge.verdict import Slice
from models.metrics.closed_form import LEAST_ROWS_OF_PART
from models.metrics.holm import holm
from models.metrics.metrics import Array, Metric
from models.project_spec import blocks as spec

LEAST_EXAMPLES = 30
"""Smaller slices are not tested: their standard error is unreliable (rule of thumb for normality)."""
MOST_VALUES = 50
"""Most values of one column; the rest is pooled as `other values`."""


def judge_slices(evidence: Evidence, rules: spec.Judge, metric: Metric, seed: int = 0) -> list[Slice]:
    """Return every slice with its values, difference and Holm-corrected p-value for a loss of more than allowed.

    Cost: about one more bootstrap of all examples for each slice column.
    """
    slices = [
        _judge_slice(evidence, rules, metric, seed, column, value, chosen)
        for column, values in evidence.slices.items()
        for value, chosen in _groups(as_text(values))
    ]
    raw = [part.difference.p_value if part.difference else None for part in slices]
    level = 1 - rules.confidence
    return [
        part.model_copy(update={"p_holm": p, "lost": p is not None and p < level})
        for part, p in zip(slices, holm(raw), strict=True)
    ]


def without_rare(slices: Mapping[str, Array], fewest: int) -> dict[str, Array]:
    """Return the values (example,) of slice columns; those of fewer examples are one slice without names."""
    return {column: _common(values, fewest) for column, values in slices.items()}


def _common(values: Array, fewest: int) -> Array:
    _, index, counts = np.unique(as_text(values), return_inverse=True, return_counts=True)
    return np.where(counts[index] < fewest, f"values of fewer than {fewest} rows", np.asarray(values, dtype=object))


def _groups(values: Array) -> Iterator[tuple[str, Array]]:
    """Yield each value, most frequent first, with the positions of its examples."""
    names, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    for place in order[:MOST_VALUES]:
        yield str(names[place]), np.flatnonzero(index == place)
    rest = np.flatnonzero(np.isin(index, order[MOST_VALUES:]))
    if len(rest):
        yield f"other values ({len(order) - MOST_VALUES})", rest


def _judge_slice(
    evidence: Evidence, rules: spec.Judge, metric: Metric, seed: int, column: str, value: str, chosen: Array
) -> Slice:
    models = {name: values[chosen] for name, values in evidence.models_for(metric).items() if name != "baseline"}
    clusters = None if evidence.clusters is None else np.unique(evidence.clusters[chosen], return_inverse=True)[1]
    num_units = None if clusters is None else len(metric.sizes(evidence.target[chosen], clusters))
    too_few = _too_few(len(chosen), num_units)
    resamples = 0 if too_few else rules.resamples
    weights = None if evidence.weights is None else evidence.weights[chosen]
    result = resample_models(
        metric, evidence.target[chosen], models, resamples, seed, clusters, weights, LEAST_ROWS_OF_PART
    )
    difference = None
    if "champion" in models:
        allowed = rules.slice_margin or 0.0
        difference = result.difference("champion", Threshold(-allowed, strict=False), rules.confidence)
        p_value = None if too_few else result.loss_p_value("champion", allowed)
        difference = difference.model_copy(
            update={"p_value": p_value, "reached": difference.reached and p_value is not None}
        )
    return Slice(
        column=column,
        value=value,
        num_samples=len(chosen),
        challenger=result.estimate("challenger", rules.confidence),
        champion=result.estimate("champion", rules.confidence) if "champion" in models else None,
        difference=difference,
        note=too_few or _note(result),
    )


def _too_few(num_examples: int, num_clusters: int | None) -> str:
    if num_examples < LEAST_EXAMPLES:
        return f"fewer than {LEAST_EXAMPLES} examples: not tested"
    if num_clusters is not None and num_clusters < LEAST_CLUSTERS:
        return f"its examples fall into {num_clusters} clusters, fewer than {LEAST_CLUSTERS}: not tested"
    return ""


def _note(result: ResampledMetrics) -> str:
    if not np.isfinite(list(result.values.values())).all():
        return f"{result.metric.name} is undefined here: not tested"
    return ""
