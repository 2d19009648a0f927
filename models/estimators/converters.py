"""Fitted estimators as ONNX: each by the converter of its library, all in one form.

A graph of that form has one input `x` (batch, width) float32 and one output `y` (batch, output) float64: what the fitted
object answers, its probabilities or its scores; of two classes those of the second alone. It holds nothing else, so that
equal models have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from models.errors import TrainingError
from models.estimators.one_form import in_one_form
from models.estimators.rows import EstimatorRow

if TYPE_CHECKING:
    import onnx

OPSET = 20
SKLEARN_ML_OPSET = 3
"""The newest for which skl2onnx writes trees in both forms that `one_form.py` reads."""
XGBOOST_OPSET = 15
"""The newest that onnxmltools knows."""


def onnx_of(row: EstimatorRow, fitted: Any, width: int, num_classes: int) -> bytes:
    """Return the graph of a fitted estimator, in the form of this module.

    Args:
        row: The row of the estimator; its `converter` and its `output` count.
        fitted: The fitted object of the library.
        width: The columns of its input.
        num_classes: The classes that it was fitted on; 0: it predicts one number.

    Raises:
        TrainingError: The library has no converter for the object, or the converter refuses it.
    """
    convert = CONVERTERS[row.converter]
    try:
        model = convert(fitted, width)
    except Exception as error:  # converters raise classes of their own without a common base
        raise TrainingError(
            f"export: {row.converter} has no graph of {type(fitted).__name__} "
            f"({type(error).__name__}: {str(error).splitlines()[0]}): take another estimator or other arguments"
        ) from error
    return in_one_form(model, width, num_classes, is_score=row.output == "scores").SerializeToString(deterministic=True)


def _by_skl2onnx(fitted: Any, width: int) -> onnx.ModelProto:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    options = {id(fitted): {"zipmap": False}} if hasattr(fitted, "classes_") else None
    model: onnx.ModelProto = convert_sklearn(
        fitted,
        initial_types=[("x", FloatTensorType([None, width]))],
        target_opset={"": OPSET, "ai.onnx.ml": SKLEARN_ML_OPSET},
        options=options,
        **_nested(),
    )
    return model


def _nested() -> dict[str, Any]:
    """Return the arguments by which skl2onnx converts the estimators of XGBoost inside others, for this call alone."""
    return {}


def _by_onnxmltools(fitted: Any, width: int) -> onnx.ModelProto:
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    model: onnx.ModelProto = convert_xgboost(
        fitted, initial_types=[("x", FloatTensorType([None, width]))], target_opset=XGBOOST_OPSET
    )
    return model


def _by_catboost(fitted: Any, width: int) -> onnx.ModelProto:
    from catboost.utils import convert_to_onnx_object

    del width
    model: onnx.ModelProto = convert_to_onnx_object(fitted)
    return model


CONVERTERS: dict[str, Callable[[Any, int], onnx.ModelProto]] = {
    "skl2onnx": _by_skl2onnx,
    "onnxmltools": _by_onnxmltools,
    "catboost": _by_catboost,
}
"""By the name in the column `converter` of `rows.py`."""
