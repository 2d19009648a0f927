"""A fitted object's graph answers what the object answers, in float64 where it is made of trees."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from models.errors import TrainingError
from models.estimators.agreement import at_thresholds
from models.estimators.converters import in_form, onnx_of
from models.estimators.rows import ROWS
from tests.extras import needs_extras

needs_extras("catboost", "onnxmltools", "skl2onnx", "xgboost")

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 4)).astype(np.float32)
X[:, 3] = rng.integers(0, 4, 90)
GAPS = np.where(rng.random(X.shape) < 0.15, np.nan, X).astype(np.float32)
CODES = np.argsort(np.argsort(X[:, 0] + X[:, 1] ** 2)) * 3 // 90
NUMBERS = X[:, 0] + X[:, 1] ** 2


def answer(graph, x=X):
    return onnxruntime.InferenceSession(graph).run(None, {"x": x})[0]


def sklearn_estimators():
    from sklearn import ensemble, linear_model, neighbors, neural_network, svm

    yield ensemble.RandomForestClassifier(5)
    yield ensemble.ExtraTreesRegressor(5)
    yield ensemble.GradientBoostingClassifier(n_estimators=5)
    yield ensemble.HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=4)
    yield linear_model.LogisticRegression()
    yield neighbors.KNeighborsRegressor()
    yield neural_network.MLPClassifier((8,), max_iter=20)
    yield svm.SVR()


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("estimator", list(sklearn_estimators()), ids=lambda estimator: type(estimator).__name__)
def test_a_graph_of_scikit_learn_answers_as_its_object(estimator, num_classes):
    row, x = ROWS[type(estimator).__name__], GAPS if ROWS[type(estimator).__name__].gaps else X
    if "binary" in row.tasks:
        estimator.fit(x, np.minimum(CODES, num_classes - 1))
        expected, classes = estimator.predict_proba(x)[:, num_classes == 2 :], num_classes
    else:
        estimator.fit(x, NUMBERS)
        expected, classes = estimator.predict(x)[:, None], 0
    got = answer(onnx_of(row, estimator, 4, classes), x)
    assert got.dtype == np.float64
    assert got == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("x", [X, GAPS], ids=["whole", "gaps"])
@pytest.mark.parametrize("num_classes", [0, 2, 3])
def test_margins_of_xgboost_and_catboost_come_out(x, num_classes):
    import catboost
    import xgboost

    target = np.minimum(CODES, num_classes - 1) if num_classes else NUMBERS
    kind = "Classifier" if num_classes else "Regressor"
    boosted = getattr(xgboost, f"XGB{kind}")(n_estimators=5, n_jobs=1).fit(x, target)
    expected = boosted.predict(x, output_margin=True).reshape(90, -1)
    graph = onnx_of(ROWS[f"XGB{kind}"], boosted, 4, num_classes)
    assert answer(graph, x) == pytest.approx(expected, abs=1e-5)
    assert onnx_of(ROWS[f"XGB{kind}"], boosted.get_booster(), 4, num_classes) == graph
    cat = getattr(catboost, f"CatBoost{kind}")(5, verbose=False, allow_writing_files=False).fit(x, target)
    expected = cat.predict(x, prediction_type="RawFormulaVal").reshape(90, -1)
    assert answer(onnx_of(ROWS[f"CatBoost{kind}"], cat, 4, num_classes), x) == pytest.approx(expected, abs=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_thresholds_of_histogram_trees_are_rounded_so_that_each_value_goes_its_way():
    """It fails if scikit-learn keeps them elsewhere."""
    from sklearn.ensemble import BaggingRegressor, HistGradientBoostingRegressor

    for estimator in (HistGradientBoostingRegressor(max_iter=5), BaggingRegressor(HistGradientBoostingRegressor(), 2)):
        estimator.fit(X, NUMBERS)
        before = estimator.predict(X)
        graph = onnx_of(ROWS["HistGradientBoostingRegressor"], estimator, 4, 0)
        rows = at_thresholds(graph, X)
        assert len(rows) > 10
        assert answer(graph, rows)[:, 0] == pytest.approx(estimator.predict(rows), abs=1e-5)
        assert (estimator.predict(X) == before).all()


def test_a_value_at_a_threshold_goes_the_way_of_the_library():
    import xgboost
    from sklearn.tree import DecisionTreeRegressor

    x = np.arange(40, dtype=np.float32)[:, None] % 20
    target = np.where(x[:, 0] < 9.5, 0.0, 1.0) + x[:, 0]
    tree = DecisionTreeRegressor().fit(x, target)
    at_thresholds = np.unique(tree.tree_.threshold).astype(np.float32)[:, None]
    got = answer(onnx_of(ROWS["DecisionTreeRegressor"], tree, 1, 0), at_thresholds)
    assert got[:, 0] == pytest.approx(tree.predict(at_thresholds), abs=1e-5)
    boosted = xgboost.XGBRegressor(n_estimators=2, tree_method="exact", n_jobs=1).fit(x, target)
    cuts = boosted.get_booster().trees_to_dataframe()["Split"].dropna().unique().astype(np.float32)[:, None]
    got = answer(onnx_of(ROWS["XGBRegressor"], boosted, 1, 0), cuts)
    assert got[:, 0] == pytest.approx(boosted.predict(cuts), abs=1e-5)


@pytest.mark.filterwarnings("ignore::Warning")
def test_estimators_inside_others_are_converted_too():
    import xgboost
    from sklearn.ensemble import RandomForestClassifier, StackingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    boosted = xgboost.XGBClassifier(n_estimators=3, n_jobs=1)
    stack = StackingClassifier([("boosted", boosted), ("forest", RandomForestClassifier(5))])
    row = replace(ROWS["LogisticRegression"], package="file")
    for estimator in (stack, make_pipeline(StandardScaler(), LogisticRegression())):
        estimator.fit(X, CODES)
        assert answer(onnx_of(row, estimator, 4, 3)) == pytest.approx(estimator.predict_proba(X), abs=1e-5)


def test_a_tree_without_a_split_is_a_number():
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(3, max_depth=1, min_samples_leaf=60).fit(X, CODES)
    graph = onnx_of(ROWS["RandomForestClassifier"], forest, 4, 3)
    assert answer(graph) == pytest.approx(forest.predict_proba(X), abs=1e-6)


@pytest.mark.filterwarnings("ignore::Warning")
def test_an_estimator_without_a_converter_is_refused():
    from sklearn.kernel_ridge import KernelRidge

    with pytest.raises(TrainingError, match="no converter for KernelRidge"):
        onnx_of(ROWS["Ridge"], KernelRidge().fit(X, NUMBERS), 4, 0)


def test_what_is_no_graph_is_refused():
    with pytest.raises(TrainingError, match="no graph can be made of Ridge"):
        in_form(ROWS["Ridge"], lambda: "graph", 4, 0)
