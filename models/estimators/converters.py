"""Fitted estimators as ONNX graphs."""

from __future__ import annotations

from typing import Any

from models.estimators.rows import EstimatorRow


def onnx_of(row: EstimatorRow, fitted: Any, width: int, num_classes: int) -> bytes:
    """Return the graph of a fitted object of a library: one input (batch, width) float32.

    Its one output is (batch,) or (batch, 1) for a number, else (batch, class) in the order of the classes that the
    object learnt: probabilities or scores, as its row says.

    Args:
        row: The facts about its class.
        fitted: An estimator of scikit-learn, or a booster of XGBoost or CatBoost.
        width: Of the matrix that it learnt from.
        num_classes: 0 for a number.
    """
    raise NotImplementedError
