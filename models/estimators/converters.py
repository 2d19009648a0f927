"""Fitted estimators as ONNX: each by the converter of its library, all in one form.

A graph of that form has one input `x` (batch, width) float32 and one output `y` (batch, output) float64: what the
fitted object answers, probabilities or scores, as its row says. Of two classes it is the second column alone, so that
`output` is 1; of more, a column for each class that was fitted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from models.errors import TrainingError
from models.estimators.rows import EstimatorRow

if TYPE_CHECKING:
    import onnx

_THRESHOLD = "num_threshold"
"""The column of thresholds in the nodes of scikit-learn's histogram trees."""
OPSET = 20
SKLEARN_ML_OPSET = 3
"""The newest for which skl2onnx writes trees in the forms that `one_form.py` reads."""
XGBOOST_OPSET = 15
"""The newest that onnxmltools knows."""


def onnx_of(row: EstimatorRow, fitted: Any, width: int, num_classes: int) -> bytes:
    """Return the graph of a fitted estimator in the form of this module; equal models have equal bytes.

    Args:
        row: The facts about its class.
        fitted: An estimator of scikit-learn, of XGBoost or of CatBoost, or a booster of XGBoost.
        width: The columns of the matrix that it learnt from.
        num_classes: The classes that it learnt; 0: one number.

    Raises:
        TrainingError: The library has no converter for the object, or its graph cannot be part of another.
    """
    return in_form(row, lambda: _CONVERTERS[row.package](fitted, width), width, num_classes)


def in_form(row: EstimatorRow, convert: Callable[[], onnx.ModelProto], width: int, num_classes: int) -> bytes:
    """Return a graph in the form of this module.

    Args:
        row: The facts about the estimator.
        convert: Returns the graph of a converter, or of a team's own function.
        width: The columns of its input.
        num_classes: The classes of its last output; 0: one number.

    Raises:
        TrainingError: The converter raised, or its graph cannot be part of another.
    """
    from models.estimators.one_form import in_one_form

    try:
        graph = in_one_form(convert(), width, num_classes, is_score=row.output == "scores")
    except TrainingError:
        raise
    except Exception as error:  # the converters' own classes have no common base, and some graphs lack what they need
        raise TrainingError(
            f"export: no graph can be made of {row.name} ({type(error).__name__}: {_first_line(error)}): "
            "take other arguments or another estimator"
        ) from error
    return bytes(graph.SerializeToString(deterministic=True))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _by_skl2onnx(fitted: Any, width: int) -> onnx.ModelProto:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType
    from skl2onnx.common.exceptions import MissingConverter, MissingShapeCalculator

    _round_thresholds(fitted)
    if "xgboost" in sys.modules:  # otherwise no step of the estimator can be of XGBoost
        _register_xgboost()
    types, opsets = [("x", FloatTensorType([None, width]))], {"": OPSET, "ai.onnx.ml": SKLEARN_ML_OPSET}
    try:
        model: onnx.ModelProto = convert_sklearn(fitted, initial_types=types, target_opset=opsets)
    except (MissingConverter, MissingShapeCalculator) as error:
        raise TrainingError(
            f"export: skl2onnx has no converter for {type(fitted).__name__} or a part of it: take another estimator"
        ) from error
    return model


def _round_thresholds(fitted: Any) -> None:
    """Round the thresholds of histogram trees, also inside other estimators, down to float32.

    A value of float32 goes the same way. skl2onnx rounds them to the nearest float32 instead, so that a value between
    the two goes another way, and scikit-learn tells them by no public name (docs/decisions/0066).
    """
    waiting, seen = [fitted], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        nodes = getattr(part, "nodes", None)
        if isinstance(nodes, np.ndarray) and _THRESHOLD in (nodes.dtype.names or ()):
            exact = nodes[_THRESHOLD]
            nearest = exact.astype(np.float32)
            nodes[_THRESHOLD] = np.where(nearest > exact, np.nextafter(nearest, np.float32(-np.inf)), nearest)
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
        elif hasattr(part, "__dict__"):
            waiting += vars(part).values()


def _register_xgboost() -> None:
    """Tell skl2onnx the converter of XGBoost's estimators, for those inside others; again and again is no harm."""
    import xgboost
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import (
        calculate_linear_classifier_output_shapes,
        calculate_linear_regressor_output_shapes,
    )

    options = {"zipmap": [True, False], "nocl": [True, False], "raw_scores": [True, False]}
    for estimator, shapes, allowed in (
        (xgboost.XGBClassifier, calculate_linear_classifier_output_shapes, options),
        (xgboost.XGBRegressor, calculate_linear_regressor_output_shapes, {}),
    ):
        update_registered_converter(estimator, f"XGBoost{estimator.__name__}", shapes, convert_xgboost, options=allowed)


def _by_onnxmltools(fitted: Any, width: int) -> onnx.ModelProto:
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("x", FloatTensorType([None, width]))]
    model: onnx.ModelProto = convert_xgboost(fitted, initial_types=types, target_opset=XGBOOST_OPSET)
    return model


def _by_catboost(fitted: Any, width: int) -> onnx.ModelProto:
    from catboost.utils import convert_to_onnx_object

    del width
    model: onnx.ModelProto = convert_to_onnx_object(fitted)
    return model


_CONVERTERS: dict[str, Callable[[Any, int], onnx.ModelProto]] = {
    "sklearn": _by_skl2onnx,
    "xgboost": _by_onnxmltools,
    "catboost": _by_catboost,
    "file": _by_skl2onnx,
}
"""The converter of a package; the estimator of a team's file is one of scikit-learn."""
