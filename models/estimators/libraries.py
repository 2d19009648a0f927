"""How each library learns: so many more rounds from the bytes before, predictions, and the first rounds of a model.

A library without rounds learns at once, and its bytes are its ONNX graph: no pickle is kept, and what is served is
what validation saw. Libraries are imported in functions alone: neither the command line nor a server loads them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import LooplineError, UserCodeError
from models.estimators.agreement import check_agreement, run_graph
from models.estimators.converters import in_form, onnx_of
from models.estimators.inputs import Matrix
from models.estimators.rows import EstimatorRow, Package
from models.project_spec.references import call, resolve

Array = NDArray[Any]
Compare = Callable[[Callable[[Matrix], Array], bytes, Matrix, str], float]
"""`check_agreement`, or what calls it."""
Settings = Mapping[str, Any]
"""The arguments, and `rounds`, `seed` and `threads`."""
_COMPARED = 1000
"""Training rows for which a fitted estimator and its graph must agree."""


@dataclass(frozen=True)
class FitData:
    """The training rows of an output.

    Attributes:
        x: The matrix (row, column), float32.
        y: Codes of classes from 0 on without a gap, int64, or numbers, float64 (row,).
        weight: Of the rows (row,), float64; None: all ones.
        task: The goal's task.
        classes: The number of classes among `y`; 0 for a number.
        categorical: The columns that hold indices of categories.
        quantile: The quantile of the target that is learnt, or None.
        loss: The loss of the goal, such as mse, l1, pinball, bce or cross_entropy.
    """

    x: Matrix
    y: Array
    weight: Array | None
    task: str
    classes: int
    categorical: tuple[int, ...]
    quantile: float | None
    loss: str


class Functions(NamedTuple):
    """What the learner calls, of a class or of a team's own row.

    Attributes:
        fit: (training rows, settings, the bytes before or None) -> bytes after so many more rounds.
        predict: (bytes, matrix) -> (row,) or (row, class).
        first: (bytes, rounds) -> the bytes of the model after its first rounds; None: a team's own row cannot be cut.
        onnx: (bytes, width, number of classes) -> bytes of the ONNX graph.
    """

    fit: Callable[[FitData, Settings, bytes | None], bytes]
    predict: Callable[[bytes, Matrix], Array]
    first: Callable[[bytes, int], bytes] | None
    onnx: Callable[[bytes, int, int], bytes]


def functions_of(row: EstimatorRow, reference: str, base: Path, compare: Compare = check_agreement) -> Functions:
    """Return how the estimator of a reference learns.

    Args:
        row: The facts about it.
        reference: `package.module:Class`, or that of a row in a file.
        base: The folder of the spec.
        compare: Compares what learns at once with its graph.

    Raises:
        UsageError: A library is missing, or the reference names nothing.
        UserCodeError: The file raised while it was imported.
    """
    return _FUNCTIONS[row.package](row, resolve(reference, base), reference, compare)


def _xgboost(row: EstimatorRow, estimator: Any, reference: str, compare: Compare) -> Functions:
    import xgboost

    def opened(model: bytes) -> Any:
        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(model))
        return booster

    def fit(data: FitData, settings: Settings, before: bytes | None) -> bytes:
        model = estimator(**_arguments(row, data, settings))
        model.fit(data.x, data.y, sample_weight=data.weight, xgb_model=before and opened(before))
        return bytes(model.get_booster().save_raw("ubj"))

    def predict(model: bytes, x: Matrix) -> Array:
        return np.asarray(opened(model).predict(xgboost.DMatrix(x, nthread=1), output_margin=True))

    def first(model: bytes, rounds: int) -> bytes:
        return bytes(opened(model)[:rounds].save_raw("ubj"))

    def onnx(model: bytes, width: int, num_classes: int) -> bytes:
        return onnx_of(row, opened(model), width, num_classes)

    return Functions(_guarded(fit, reference), predict, first, onnx)


def _catboost(row: EstimatorRow, estimator: Any, reference: str, compare: Compare) -> Functions:
    import catboost

    def opened(model: bytes) -> Any:
        loaded = catboost.CatBoost()
        loaded.load_model(blob=model)
        return loaded

    def stored(model: Any) -> bytes:
        """Return CatBoost's file without the time, a random number, the threads and the settings of each fit."""
        metadata = model.get_metadata()
        loss = json.loads(metadata["params"])["loss_function"]
        for name in [*metadata.keys()]:
            if name != "class_params":
                del metadata[name]
        metadata["params"] = json.dumps({"loss_function": loss}, sort_keys=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.cbm"
            model.save_model(str(path))
            return path.read_bytes()

    def fit(data: FitData, settings: Settings, before: bytes | None) -> bytes:
        model = estimator(**_arguments(row, data, settings))
        model.fit(data.x, data.y, sample_weight=data.weight, init_model=before and opened(before))
        return stored(model)

    def predict(model: bytes, x: Matrix) -> Array:
        return np.asarray(opened(model).predict(x, prediction_type="RawFormulaVal", thread_count=1))

    def first(model: bytes, rounds: int) -> bytes:
        shortened = opened(model)
        shortened.shrink(ntree_end=rounds)
        return stored(shortened)

    def onnx(model: bytes, width: int, num_classes: int) -> bytes:
        return onnx_of(row, opened(model), width, num_classes)

    return Functions(_guarded(fit, reference), predict, first, onnx)


def _sklearn(row: EstimatorRow, estimator: Any, reference: str, compare: Compare) -> Functions:
    def build(data: FitData, settings: Settings) -> Any:
        return estimator(**_arguments(row, data, settings))

    return _at_once(row, build, reference, compare)


def _own(row: EstimatorRow, family: Any, reference: str, compare: Compare) -> Functions:
    """Return how a row of a team's file learns: by its own functions, or the estimator that one of them returns."""
    if "estimator" in family:
        return _at_once(
            row, lambda data, settings: family["estimator"](_own_settings(row, data, settings)), reference, compare
        )

    def fit(data: FitData, settings: Settings, before: bytes | None) -> bytes:
        model = family["fit"](data, _own_settings(row, data, settings), before)
        if not isinstance(model, bytes):
            raise UserCodeError(f"{reference}: fit returned {type(model).__name__}, expected bytes")
        return model

    def predict(model: bytes, x: Matrix) -> Array:
        return np.asarray(call(family["predict"], f"{reference} predict", model, x))

    def onnx(model: bytes, width: int, num_classes: int) -> bytes:
        graph = call(family["onnx"], f"{reference} onnx", model, width)
        return in_form(row, lambda: graph, width, num_classes)

    return Functions(_guarded(fit, reference), predict, None, onnx)


_FUNCTIONS: dict[Package, Callable[[EstimatorRow, Any, str, Compare], Functions]] = {
    "sklearn": _sklearn,
    "xgboost": _xgboost,
    "catboost": _catboost,
    "file": _own,
}
Build = Callable[[FitData, Settings], Any]


def _at_once(row: EstimatorRow, build: Build, reference: str, compare: Compare) -> Functions:
    """Return how an estimator without rounds learns: in one fit, whose graph is the model."""

    def fit(data: FitData, settings: Settings, before: bytes | None) -> bytes:
        del before
        estimator = build(data, settings)
        estimator.fit(data.x, data.y, **_weighted(estimator, data.weight))
        graph = onnx_of(row, estimator, data.x.shape[1], data.classes)
        some = data.x[:: max(1, len(data.x) // _COMPARED)]
        compare(lambda x: _answers(row, estimator, x), graph, some, f"model.net: {reference}")
        return graph

    def first(model: bytes, rounds: int) -> bytes:
        del rounds
        return model

    def onnx(model: bytes, width: int, num_classes: int) -> bytes:
        del width, num_classes
        return model

    return Functions(_guarded(fit, reference), run_graph, first, onnx)


def _arguments(row: EstimatorRow, data: FitData, settings: Settings) -> dict[str, Any]:
    """Return the arguments of a class: the spec's, and those that Loopline sets."""
    own = {name: value for name, value in settings.items() if name not in ("rounds", "seed", "threads")}
    named = {row.rounds: "rounds", row.seed: "seed", row.threads: "threads"}
    set_here = {argument: settings[key] for argument, key in named.items() if argument}
    objective = dict(row.objectives.get(data.loss, {}))
    if data.quantile is not None:
        objective[row.quantile] = row.quantile_form.format(data.quantile) if row.quantile_form else data.quantile
    return {**own, **row.fixed, **objective, **set_here}


def _own_settings(row: EstimatorRow, data: FitData, settings: Settings) -> dict[str, Any]:
    """Return the settings as a team's own function takes them."""
    return {**row.defaults, **settings, "quantile": data.quantile}


def _weighted(estimator: Any, weight: Array | None) -> dict[str, Array]:
    """Return the weights as `fit` takes them; the last step of a pipeline gets them."""
    if weight is None:
        return {}
    steps = getattr(estimator, "steps", None)
    return {f"{steps[-1][0]}__sample_weight" if steps else "sample_weight": weight}


def _answers(row: EstimatorRow, estimator: Any, x: Matrix) -> NDArray[np.float64]:
    """Return what a fitted estimator says (row, output); of two classes that of the second alone, as its graph."""
    has_scores = row.output == "scores" and hasattr(estimator, "decision_function")
    by_class = estimator.decision_function if has_scores else getattr(estimator, "predict_proba", estimator.predict)
    answers = np.asarray(by_class(x), np.float64).reshape(len(x), -1)
    return answers[:, 1:] if answers.shape[1] == 2 else answers


def _guarded(fit: Callable[..., bytes], reference: str) -> Callable[[FitData, Settings, bytes | None], bytes]:
    """Return a fit whose errors name the reference and the line that raised."""

    def guarded(data: FitData, settings: Settings, before: bytes | None) -> bytes:
        try:
            fitted: bytes = call(fit, f"model.net: {reference}", data, settings, before)
        except UserCodeError as error:
            if isinstance(error.__cause__, LooplineError):
                raise error.__cause__ from None
            raise UserCodeError(f"{error}: look at model.arguments and the data") from error
        return fitted

    return guarded
