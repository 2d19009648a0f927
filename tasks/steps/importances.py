"""Which columns the exported model relies on, measured on validation rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from models.data.preparation import Preparation
from models.inference.portable import MODEL_FILE
from models.inference.predict import predict
from models.judge.importance import MOST_ROWS, columns_of, measure_importances
from models.metrics.metrics import metric_of
from models.project_spec.blocks import Spec
from tasks.loop.loop import Inputs

if TYPE_CHECKING:
    from pathlib import Path

    from models.judge.column_importance import Importances
    from models.judge.importance import Feed


def importances(inputs: Inputs, spec: Spec, folder: Path) -> Importances | None:
    """Return what each column is worth to the exported graph; None where that is not measured.

    It takes part in no decision.

    Args:
        inputs: The results of the steps before.
        spec: The project's spec.
        folder: The project's folder, in which its own metric lies.
    """
    from models.data import feeds
    from models.data.sampled_examples import UNITS, sampled_examples
    from models.data.weights import weights_of

    prepared, graph = inputs["prepare"].folder, inputs["export"].file(MODEL_FILE)
    preparation = Preparation.load(inputs["export"].folder)
    places = columns_of(preparation)
    target = feeds.targets(prepared, "validation")
    if not places or not len(target):
        return None
    positions = sampled_examples(prepared, "validation", target, preparation.task, MOST_ROWS)
    units = UNITS[preparation.task](target[positions])
    order = np.argsort(np.random.default_rng(spec.train.seed).permutation(len(positions))[units], kind="stable")
    rows = {
        name: values[order] for name, values in feeds.feed_at(prepared, "validation", preparation, positions).items()
    }
    weights = weights_of(prepared, "validation")
    truth, weight = target[positions][order], None if weights is None else weights[positions][order]
    metric = metric_of(spec.goal, preparation, folder).at(preparation.class_head.decision)

    def run(shuffled: Iterable[Feed]) -> np.ndarray:
        return predict(graph, shuffled, preparation)

    def loss(prediction: np.ndarray) -> float:
        num = len(prediction)
        return -metric.sign * metric.weighted(truth[:num], prediction, None if weight is None else weight[:num])(
            np.ones(num)
        )

    measured = measure_importances(run, rows, places, loss, spec.train.seed)
    return measured and measured.model_copy(update={"is_learnt": inputs["export"].result["has_learnt_validation"]})
