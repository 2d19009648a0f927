"""The predictions of a challenger's rivals on its test rows: of the champion, and of the best champion so far."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from models.errors import DataError
from models.judge.verdict import ServingCost
from tasks.loop.champion_parts import Rival
from tasks.loop.loop import Loop
from tasks.mlflow import registry_reader
from tasks.mlflow.model_cache import cached_copy, cached_version, fetch

if TYPE_CHECKING:
    import numpy as np

    from models.data.feeds import Feed
    from models.data.preparation import Preparation
    from models.metrics.classification import Decision


class FrozenRows(NamedTuple):
    """The test rows: where the prepared and the raw rows lie, and the digest of the prepared ones."""

    prepared: Path
    raw: Path
    digest: str


class RivalPredictions(NamedTuple):
    """The predictions of a rival on our test rows, by its own preparation; all None without one."""

    prediction: np.ndarray | None = None
    cost: ServingCost | None = None
    known: np.ndarray | None = None
    """Which test rows it knows; None if its version has no such record."""
    decision: Decision = 0.5

    def reversed(self) -> RivalPredictions:
        """Return them with the other class of two as the positive one; its decision is a threshold."""
        turned = 1 - self.decision if isinstance(self.decision, float) else self.decision
        return self._replace(prediction=None if self.prediction is None else 1 - self.prediction, decision=turned)


def champion(loop: Loop, rows: FrozenRows, rival: Rival, ours: Preparation) -> RivalPredictions:
    """Return the champion on our test rows; nothing if there is none or it cannot read the rows."""
    from models.data.preparation import KNOWN_ROWS_FILE, PREPARATION_FILE, Preparation
    from models.inference.portable import MODEL_FILE

    if not rival.identity:
        return RivalPredictions()
    number = rival.identity.partition(":")[0]
    names = (MODEL_FILE, PREPARATION_FILE, KNOWN_ROWS_FILE)
    folder = cached_version(loop.workspace, loop.spec.name, number, names).folder
    theirs = Preparation.load(folder)
    is_reversed = theirs.target.is_reversed(ours.target)
    if theirs.task != ours.task or not (is_reversed or theirs.target.predicts_same(ours.target)):
        loop.report.note(f"the champion (version {number}) predicts another target: judged by goal and baseline")
        return RivalPredictions()
    try:
        prediction = predictions(rows, folder / MODEL_FILE, theirs)
        cost = serving_cost(rows, folder / MODEL_FILE, theirs)
    except DataError as error:
        loop.report.note(f"the champion cannot read this data ({error}): judged by goal and baseline")
        return RivalPredictions()
    if is_reversed:
        loop.report.note(f"judge: the champion (version {number}) has the other class as its positive one")
    rival_rows = RivalPredictions(prediction, cost, _known(rows, folder), theirs.class_head.decision)
    return rival_rows.reversed() if is_reversed else rival_rows


def best_champion(
    loop: Loop, rows: FrozenRows, rival: Rival, ours: Preparation, target: np.ndarray
) -> RivalPredictions:
    """Return the best champion so far on our test rows; nothing if it is the champion, or cannot be compared.

    Its stored predictions count if they are of the same prepared data, or if its graph cannot read ours: then on the
    test rows that both have. `known` holds the rows that do not count.
    """
    from models.data.preparation import KNOWN_ROWS_FILE, PREPARATION_FILE, Preparation
    from models.inference.portable import MODEL_FILE
    from models.judge.held_out import example_rows
    from models.judge.stored_predictions import PREDICTIONS_FILE, StoredPredictions

    number = rival.best.partition(":")[0]
    version = registry_reader.named(loop.workspace.state, loop.spec.name, number) if rival.best else None
    if version is None or version.identity != rival.best:
        if rival.best:
            loop.report.note(f"the best champion so far (version {number}) is gone: the champion is the reference now")
        return RivalPredictions()
    names = (MODEL_FILE, PREPARATION_FILE, KNOWN_ROWS_FILE, PREDICTIONS_FILE)
    folder = cached_copy(loop.workspace, loop.spec.name, version, fetch, names=names).folder
    theirs, is_known = Preparation.load(folder), _known(rows, folder)
    is_reversed, decision = theirs.target.is_reversed(ours.target), theirs.class_head.decision
    if theirs.task != ours.task or not (is_reversed or theirs.target.predicts_same(ours.target)):
        return RivalPredictions()
    stored = StoredPredictions.load(folder / PREDICTIONS_FILE)
    if stored is not None and stored.prepared == rows.digest:
        return RivalPredictions(stored.prediction, None, is_known, decision)
    try:
        rival_rows = RivalPredictions(predictions(rows, folder / MODEL_FILE, theirs), None, is_known, decision)
        return rival_rows.reversed() if is_reversed else rival_rows
    except DataError as error:
        shared = stored.on(example_rows(rows.prepared, ours), target) if stored is not None else None
        if shared is None:
            loop.report.note(f"the best champion so far (version {number}) cannot read this data ({error})")
            return RivalPredictions()
        prediction, is_predicted = shared
        return RivalPredictions(
            prediction, None, ~is_predicted if is_known is None else is_known | ~is_predicted, decision
        )


def predictions(rows: FrozenRows, graph: Path, preparation: Preparation) -> np.ndarray:
    """Return a graph's predictions of the test rows, in the form for metrics.

    Raises:
        DataError: The preparation cannot read the rows.
    """
    from models.inference.predict import predict

    return predict(graph, _test_rows(rows, preparation), preparation)


def serving_cost(rows: FrozenRows, graph: Path, preparation: Preparation) -> ServingCost:
    """Return the measured cost of serving a graph."""
    from models.inference.predict import latency_ms

    first = next(_test_rows(rows, preparation, batch=1))
    example = {name: values[:1] for name, values in first.items()}
    return ServingCost(latency_ms=latency_ms(graph, example), size_mb=graph.stat().st_size / 1e6)


def _known(rows: FrozenRows, version: Path) -> np.ndarray | None:
    """Return which test examples a version knows; None if it has no such record."""
    import numpy as np

    from models.data.preparation import KNOWN_ROWS_FILE
    from models.judge.held_out import is_known

    path = version / KNOWN_ROWS_FILE
    hashes = np.load(path) if path.exists() else np.zeros(0, dtype=np.uint64)
    return is_known(rows.prepared, hashes) if len(hashes) else None


def _test_rows(rows: FrozenRows, preparation: Preparation, **options: Any) -> Iterator[Feed]:
    from models.data.feeds import feeds

    return feeds(rows.prepared, "test", preparation, raw=rows.raw, **options)
