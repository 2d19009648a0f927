"""How good a replayed model is: the verdict of the live loop against the champion, and its score in a period."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.data.feeds import feeds, slice_values, targets
from models.data.preparation import Preparation
from models.data.weights import weights_of
from models.errors import DataError
from models.inference.portable import MODEL_FILE
from models.inference.predict import latency_ms, predict
from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.judge.held_out import baseline_of, with_clusters
from models.judge.verdict import ServingCost, Verdict
from models.kinds.data_kind import PerDataKind
from models.metrics.bootstrap import resample, time_blocks
from models.metrics.classification import Decision
from models.metrics.metrics import Array, Metric, metric_of
from models.project_spec.blocks import Spec

PREPARED = "prepared"
RESAMPLES = 400


@dataclass(frozen=True)
class Score:
    """The metric of one model in one period: plain, and on resamples of the period's rows (resample,).

    The resamples of a period are the same for every model.
    """

    value: float
    drawn: Array
    num_rows: int


def contest(challenger: Path, champion: Path | None, spec: Spec, base: Path, best: Path | None = None) -> Verdict:
    """Return the verdict on a challenger, on the test rows of its own data.

    Args:
        challenger: Folder of the trained model: `model.onnx`, `preparation.json` and `prepared/`.
        champion: Folder of the serving model; None: there is none yet.
        spec: Its `goal`, `judge` and `serve` are the rules.
        base: The folder of the spec.
        best: Folder of the best champion so far, where that is not the champion.

    Raises:
        DataError: The predictions cannot be compared.
        StoreError: A model's files are damaged.
    """
    prepared = challenger / PREPARED
    preparation = Preparation.load(challenger)
    target = targets(prepared, "test")
    metric = metric_of(spec.goal, preparation, base)
    baseline = baseline_of(prepared, preparation, target, spec.goal.reference or "mae")
    against, threshold = _champion(champion, prepared, preparation) if champion else (None, 0.5)
    before, best_threshold = _champion(best, prepared, preparation) if best else (None, 0.5)
    evidence = Evidence(
        task=preparation.task,
        target=target,
        challenger=predict(challenger / MODEL_FILE, feeds(prepared, "test", preparation), preparation),
        thresholds={
            "challenger": preparation.class_head.decision,
            "champion": threshold,
            "best": best_threshold,
            "baseline": baseline.threshold,
        },
        champion=against,
        best=before,
        best_id=best.name[:8] if best else None,
        baseline=baseline.prediction,
        weights=weights_of(prepared, "test"),
        baseline_name=baseline.name,
        outputs=preparation.outputs,
        positive=preparation.target.positive,
        slices=slice_values(prepared, "test", spec.judge.slices),
        challenger_id=challenger.name,
        champion_id=champion.name if champion else None,
        challenger_cost=_cost(challenger / MODEL_FILE, prepared, preparation, spec),
    )
    evidence = with_clusters(evidence, prepared, preparation, spec)
    return judge(evidence, spec.judge, metric, spec.goal.good_enough, spec.serve.max_latency_ms, spec.train.seed)


def score(
    metric: Metric,
    target: Array,
    prediction: Array,
    preparation: Preparation,
    seed: int = 0,
    weights: Array | None = None,
) -> Score:
    """Return the metric on a period's rows, plain and resampled; adjacent rows of a series are drawn together.

    Rows count by their `weights` (row,), float64 >= 0; None: all alike.
    """
    num = len(target)
    clusters = _CLUSTERS[preparation.kind](num, preparation)
    weighted_score = metric.at(preparation.class_head.decision).weighted(target, prediction, weights)
    drawn = resample([weighted_score], num, RESAMPLES, seed, clusters)[:, 0]
    return Score(weighted_score(np.ones(num)), drawn, num)


def _rows_apart(num_rows: int, preparation: Preparation) -> None:
    del num_rows, preparation


def _time_blocks(num_rows: int, preparation: Preparation) -> Array:
    """Return blocks of adjacent rows, none shorter than the steps that a forecast spans."""
    return time_blocks(num_rows, max(preparation.required_window.last_horizon, round(num_rows ** (1 / 3))))


_CLUSTERS: PerDataKind[Callable[[int, Preparation], Array | None]] = {
    "table": _rows_apart,
    "image": _rows_apart,
    "series": _time_blocks,
    "text": _rows_apart,
}
"""The rows that are drawn together (row,); None: each by itself."""


def _champion(champion: Path, prepared: Path, ours: Preparation) -> tuple[Array | None, Decision]:
    """Return the champion's predictions of the challenger's test rows, and its decision, for the same positive class.

    None if its preparation cannot read the rows.
    """
    theirs = Preparation.load(champion)
    decision, is_reversed = theirs.class_head.decision, theirs.target.is_reversed(ours.target)
    if theirs.task != ours.task or not (is_reversed or theirs.target.predicts_same(ours.target)):
        return None, decision
    try:
        prediction = predict(champion / MODEL_FILE, feeds(prepared, "test", theirs), theirs)
    except DataError:
        return None, decision
    return (1 - prediction, 1 - theirs.class_head.threshold) if is_reversed else (prediction, decision)


def _cost(graph: Path, prepared: Path, preparation: Preparation, spec: Spec) -> ServingCost:
    """Return size, and latency if a gate needs it: a measured time would make two replays differ."""
    size_mb = graph.stat().st_size / 1e6
    if spec.judge.max_latency_ms is None and spec.serve.max_latency_ms is None:
        return ServingCost(size_mb=size_mb)
    example = {name: values[:1] for name, values in next(feeds(prepared, "test", preparation, batch=1)).items()}
    return ServingCost(latency_ms=latency_ms(graph, example), size_mb=size_mb)
