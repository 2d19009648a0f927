import numpy as np
import pytest

from models.estimators.inputs import input_plan
from models.estimators.learner import Fit, OutputRows, class_scores, cut, grown, raw_outputs
from models.estimators.libraries import functions_of
from models.estimators.rows import LEAST_CHANCE, ROWS
from models.estimators.stored import pack, unpack
from tests.unit.models.estimators.test_rows import class_of


def rows_of(count=300, seed=0):
    """Two numbers and the index of a category."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(size=(count, 2)), rng.integers(0, 3, count)]).astype(np.float32)


def fit_of(name, features, tmp_path, task="binary", loss="bce", weights=None, **arguments):
    """What a class learns by, with a plan of its matrix."""
    row = ROWS[name]
    functions = functions_of(row, f"{class_of(row).__module__}:{name}", tmp_path)
    plan = input_plan(row, features, [3], weights)
    return Fit(functions, plan, task, loss, {**row.defaults, **arguments}, 1)


@pytest.mark.parametrize(
    ("name", "sampling"),
    [("XGBClassifier", {"subsample": 0.6, "colsample_bynode": 0.5}), ("CatBoostClassifier", {"rsm": 0.5})],
)
def test_rounds_go_on_from_bytes_with_the_same_bytes(name, sampling, tmp_path):
    features = rows_of()
    fit = fit_of(name, features, tmp_path, **sampling)
    outputs = [OutputRows((features[:, 0] > 0).astype(np.int64), None, 2)]
    first = grown(fit, features, outputs, None, 4, 1)
    whole = grown(fit, features, outputs, first, 4, 2)
    resumed = grown(fit, features, outputs, unpack(pack(first)), 4, 2)
    assert pack(whole) == pack(resumed)
    assert pack(grown(fit, features, outputs, first, 4, 3)) != pack(whole)
    assert pack(cut(fit.functions.first, whole, 4)) == pack(first)
    raw = raw_outputs(fit.functions, ROWS[name].output, whole, "logistic", 2, features)
    assert raw.shape == (300, 1)
    assert ((raw[:, 0] > 0) == (features[:, 0] > 0)).mean() > 0.9


@pytest.mark.parametrize("name", ["XGBClassifier", "CatBoostClassifier"])
@pytest.mark.parametrize("seen", [(0, 1, 2, 3), (0, 2, 3), (1, 3), (2,)])
def test_a_class_without_a_row_is_the_least_likely(name, seen, tmp_path):
    features = rows_of()
    codes = np.array(seen)[np.argsort(np.argsort(features[:, 0])) * len(seen) // len(features)]
    fit = fit_of(name, features, tmp_path, "multiclass", "cross_entropy")
    estimator = grown(fit, features, [OutputRows(codes, None, 4)], None, 20, 0)
    assert estimator.outputs[0].classes == seen
    raw = raw_outputs(fit.functions, ROWS[name].output, unpack(pack(estimator)), "softmax", 4, features)
    assert raw.shape == (300, 4)
    assert (raw.argmax(axis=1) == codes).mean() > 0.95


@pytest.mark.parametrize(("name", "tolerance"), [("XGBRegressor", 0.1), ("CatBoostRegressor", 0.1)])
def test_each_quantile_has_a_model_of_its_own(name, tolerance, tmp_path):
    features = rows_of(2000)
    target = features[:, 0] + np.random.default_rng(1).normal(size=2000)
    fit = fit_of(name, features, tmp_path, "quantile", "pinball", learning_rate=0.3)
    outputs = [OutputRows(target, None, 0, level) for level in (0.1, 0.9)]
    estimator = grown(fit, features, outputs, None, 30, 0)
    raw = raw_outputs(fit.functions, ROWS[name].output, estimator, "identity", 0, features)
    assert (target[:, None] <= raw).mean(axis=0) == pytest.approx([0.1, 0.9], abs=tolerance)


@pytest.mark.parametrize("name", ["XGBRegressor", "CatBoostRegressor"])
def test_a_target_that_is_constant_is_learnt(name, tmp_path):
    features = rows_of(50)
    fit = fit_of(name, features, tmp_path, "regression", "mse")
    estimator = grown(fit, features, [OutputRows(np.full(50, 2.5), None, 0)], None, 2, 0)
    assert raw_outputs(fit.functions, ROWS[name].output, estimator, "identity", 0, features) == pytest.approx(
        2.5, abs=1e-5
    )


def test_probabilities_become_logits_that_are_cut():
    raw = np.array([[1.0, 0.0], [0.25, 0.75]])
    scores = class_scores(raw, (0, 1), 2, "probabilities")
    assert scores[1] == pytest.approx(np.log([0.25, 0.75]))
    assert scores[0, 1] == pytest.approx(np.log(LEAST_CHANCE))
    assert class_scores(raw[:, 1], (0, 1), 2, "probabilities") == pytest.approx(scores)
    assert class_scores(np.array([0.3]), (1, 2), 3, "scores") == pytest.approx(np.array([[np.log(1e-7), 0.0, 0.3]]))


@pytest.mark.filterwarnings("ignore:Field onnx.AttributeProto.ints")  # skl2onnx writes booleans
@pytest.mark.parametrize(
    ("name", "fewer"),
    [
        ("ExtraTreesClassifier", {"n_estimators": 20}),
        ("HistGradientBoostingClassifier", {"max_iter": 20}),
        ("LogisticRegression", {}),
    ],
)
@pytest.mark.parametrize("seen", [(0, 1), (0, 2), (0, 1, 2)])
def test_what_learns_at_once_is_its_graph(name, fewer, seen, tmp_path):
    features = rows_of()
    codes = np.array(seen)[np.argsort(np.argsort(features[:, 0])) * len(seen) // len(features)]
    fit = fit_of(name, features, tmp_path, "multiclass", "cross_entropy", **fewer)
    estimator = grown(fit, features, [OutputRows(codes, None, 3)], None, 1, 0)
    assert pack(estimator) == pack(grown(fit, features, [OutputRows(codes, None, 3)], None, 1, 0))
    raw = raw_outputs(fit.functions, ROWS[name].output, estimator, "softmax", 3, features)
    assert (raw.argmax(axis=1) == codes).mean() > 0.9
