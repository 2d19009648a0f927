"""The joined graph of an estimator gives its raw outputs, from numbers and categories on."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from models.estimators.agreement import run_graph
from models.estimators.inputs import input_plan
from models.estimators.joined import join
from models.estimators.learner import Fit, OutputRows, grown, raw_outputs
from models.estimators.libraries import functions_of
from models.estimators.one_form import INPUT, OUTPUT, as_model
from models.estimators.rows import ROWS
from models.inputs.graph_builder import GraphBuilder
from models.kinds.task import TASKS
from tests.extras import needs_extras

needs_extras("catboost", "onnxmltools", "skl2onnx", "xgboost")

rng = np.random.default_rng(0)
FEATURES = rng.normal(size=(40, 4)).astype(np.float32)
FEATURES[:, 3] = rng.integers(0, 3, 40)
SUMS = FEATURES[:, 0] + FEATURES[:, 3]
RANKS = np.argsort(np.argsort(SUMS))
NONE = np.zeros(40, np.int64)
OUTPUTS = {
    "binary": [OutputRows(RANKS // 20, None, 2)],
    "multilabel": [OutputRows(RANKS // 20, None, 2), OutputRows(NONE, None, 2), OutputRows(NONE + 1, None, 2)],
    "multiclass": [OutputRows(np.array([0, 1, 3])[RANKS * 3 // 40], None, 4)],
    "regression": [OutputRows(SUMS, None, 0), OutputRows(-SUMS, None, 0)],
    "quantile": [OutputRows(SUMS, None, 0, 0.1), OutputRows(SUMS, None, 0, 0.9)],
}
LOSSES = {"logistic": "bce", "softmax": "cross_entropy", "identity": "mse"}
REFERENCES = (
    "sklearn.ensemble:ExtraTreesClassifier",
    "sklearn.ensemble:HistGradientBoostingRegressor",
    "sklearn.linear_model:LogisticRegression",
    "xgboost:XGBClassifier",
    "xgboost:XGBRegressor",
    "catboost:CatBoostClassifier",
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # skl2onnx hands numpy's truths to protobuf
@pytest.mark.parametrize("task", OUTPUTS)
@pytest.mark.parametrize("reference", REFERENCES)
def test_the_graph_gives_the_raw_outputs(reference, task):
    row, link, outputs = ROWS[reference.partition(":")[2]], TASKS[task].link, OUTPUTS[task]
    if task not in row.tasks:
        return
    functions = functions_of(row, reference, Path())
    plan = input_plan(row, FEATURES, [3], None)
    loss = "pinball" if task == "quantile" else LOSSES[link]
    small = {"n_estimators": 5} if "ExtraTrees" in reference else {}
    estimator = grown(Fit(functions, plan, task, loss, small, 1), FEATURES, outputs, None, 3, 1)
    builder = GraphBuilder("core/")
    assert plan.width == plan.matrix(FEATURES).shape[1]
    name = join(
        builder,
        INPUT,
        estimator,
        lambda model: functions.onnx(model.model, plan.width, len(model.classes)),
        row.output,
        link,
        outputs[0].num_classes,
    )
    expected = raw_outputs(functions, row.output, estimator, link, outputs[0].num_classes, FEATURES)
    builder.node("Identity", [name], "output", output=OUTPUT)
    model = as_model(builder, 4, expected.shape[1])
    onnx.checker.check_model(model, full_check=True)
    assert run_graph(model.SerializeToString(), FEATURES) == pytest.approx(expected, abs=1e-6)
