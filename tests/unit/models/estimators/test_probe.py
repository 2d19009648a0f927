"""The probe refuses every converter that is wrong, also those that the driver avoids, and three made ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from models.errors import LooplineError
from models.estimators.converters import onnx_of
from models.estimators.libraries import Functions, functions_of
from models.estimators.probe import probe, probe_reference, probe_tasks
from models.estimators.rows import ROWS
from tests.extras import needs_extras

needs_extras("catboost", "onnxmltools", "skl2onnx", "xgboost")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # skl2onnx hands numpy's truths to protobuf
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
BOOSTED = ROWS["XGBRegressor"]


def probed(row, functions, task="regression"):
    return probe(row, functions, task, {}, "model.net: probed")


@pytest.mark.parametrize(
    ("reference", "task"),
    [
        ("xgboost:XGBClassifier", "multiclass"),
        ("xgboost:XGBRegressor", "quantile"),
        ("catboost:CatBoostClassifier", "multilabel"),
        ("catboost:CatBoostRegressor", "regression"),
        ("sklearn.ensemble:HistGradientBoostingClassifier", "binary"),
        ("sklearn.linear_model:LogisticRegression", "multiclass"),
        ("sklearn.neighbors:KNeighborsRegressor", "regression"),
    ],
)
def test_right_converters_pass(reference, task):
    assert probe_reference(ROWS[reference.partition(":")[2]], reference, Path(), task, {}) < 1e-6


def test_more_neighbours_than_the_usual_rows_pass():
    reference = "sklearn.neighbors:KNeighborsClassifier"
    assert probe_reference(ROWS["KNeighborsClassifier"], reference, Path(), "binary", {"n_neighbors": 50}) < 1e-6


def test_a_row_of_a_file_that_returns_a_pipeline_passes(tmp_path):
    (tmp_path / "scaled.py").write_text(
        "from sklearn.decomposition import PCA\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n\n\n"
        "def estimator(settings):\n"
        "    return make_pipeline(StandardScaler(), PCA(5, random_state=0), LogisticRegression())\n\n\n"
        'FAMILY = {"estimator": estimator, "tasks": ["binary"]}\n'
    )
    row = replace(ROWS["LogisticRegression"], package="file", numbers="prepared", name="scaled")
    assert probe_reference(row, "./scaled.py:FAMILY", tmp_path, "binary", {}) < 1e-6


def xgboost_of(train, *, row=BOOSTED):
    """Functions of XGBoost with another training: `train` returns a fitted estimator for the training rows."""
    usual = functions_of(BOOSTED, "xgboost:XGBRegressor", Path())

    def fit(data, settings, before):
        return bytes(train(data).get_booster().save_raw("ubj"))

    def onnx_of_model(model, width, num_classes):
        import xgboost

        booster = xgboost.Booster()
        booster.load_model(bytearray(model))
        return onnx_of(row, booster, width, num_classes)

    return Functions(fit, usual.predict, usual.first, onnx_of_model)


def several_quantiles(data):
    import xgboost

    settings = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}
    return xgboost.XGBRegressor(n_estimators=4, n_jobs=1, **settings).fit(data.x, data.y)


def several_targets(data):
    import xgboost

    targets = np.stack([data.y, 9 - data.y], axis=1)
    return xgboost.XGBRegressor(n_estimators=4, n_jobs=1).fit(data.x, targets)


def several_labels(data):
    import xgboost

    labels = np.stack([data.y > 0, data.x[:, 2] > 2], axis=1)
    return xgboost.XGBClassifier(n_estimators=4, n_jobs=1).fit(data.x, labels)


def ranks(data):
    import xgboost

    grades = np.argsort(np.argsort(data.y)) * 4 // len(data.y)
    groups = np.arange(len(data.y)) // 10
    return xgboost.XGBRanker(objective="rank:ndcg", n_estimators=4, n_jobs=1).fit(data.x, grades, qid=groups)


def boosted_by(booster):
    def train(data):
        import xgboost

        return xgboost.XGBRegressor(booster=booster, n_estimators=4, n_jobs=1).fit(np.nan_to_num(data.x), data.y)

    return train


@pytest.mark.parametrize(
    "train",
    [several_quantiles, several_targets, several_labels, ranks, boosted_by("dart"), boosted_by("gblinear")],
    ids=["quantiles", "targets", "labels", "ndcg", "dart", "gblinear"],
)
def test_wrong_graphs_of_xgboost_are_refused(train):
    with pytest.raises(LooplineError, match=r"apart|numbers a row|no graph can be made|does not run"):
        probed(replace(BOOSTED, gaps=train.__name__ != "train"), xgboost_of(train))


def catboost_of(**settings):
    import catboost

    usual = functions_of(ROWS["CatBoostRegressor"], "catboost:CatBoostRegressor", Path())

    def fit(data, given, before):
        target = np.stack([data.y, -data.y], axis=1) if settings["loss_function"] in SEVERAL else data.y
        target = (target > 0).astype(int) if settings["loss_function"] == "MultiLogloss" else target
        x = data.x
        if "cat_features" in settings:
            x = [[*row[:2], int(row[2])] for row in np.nan_to_num(x).tolist()]
        model = catboost.CatBoost({"iterations": 4, "verbose": 0, "allow_writing_files": False, **settings})
        model.fit(x, target)
        MODELS[settings["loss_function"]] = model
        return settings["loss_function"].encode()

    def predict(model, x):
        fitted = MODELS[model.decode()]
        rows = [[*row[:2], int(row[2])] for row in np.nan_to_num(x).tolist()] if "cat_features" in settings else x
        kind = "Probability" if settings["loss_function"] == "MultiLogloss" else "RawFormulaVal"
        return np.asarray(fitted.predict(rows, prediction_type=kind))

    def onnx_of_model(model, width, num_classes):
        output = "probabilities" if settings["loss_function"] == "MultiLogloss" else "scores"
        row = replace(ROWS["CatBoostRegressor"], output=output)
        return onnx_of(row, MODELS[model.decode()], width, num_classes)

    return Functions(fit, predict, usual.first, onnx_of_model)


SEVERAL = ("MultiLogloss", "MultiRMSE")
MODELS: dict = {}


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_function": "MultiLogloss"},
        {"loss_function": "MultiQuantile:alpha=0.1,0.5,0.9"},
        {"loss_function": "MultiRMSE"},
        {"loss_function": "RMSE", "grow_policy": "Depthwise"},
        {"loss_function": "RMSE", "grow_policy": "Lossguide"},
        {"loss_function": "RMSE", "cat_features": [2]},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_wrong_graphs_of_catboost_are_refused(settings):
    with pytest.raises(LooplineError, match=r"apart|numbers a row|no graph can be made|does not run"):
        probed(ROWS["CatBoostRegressor"], catboost_of(**settings))


@pytest.mark.parametrize(
    ("reference", "task", "settings"),
    [
        ("sklearn.ensemble:HistGradientBoostingClassifier", "binary", {"categorical_features": [2]}),
        ("sklearn.neighbors:RadiusNeighborsClassifier", "binary", {"radius": 2.0}),
        ("sklearn.neighbors:RadiusNeighborsRegressor", "regression", {"radius": 2.0}),
        ("sklearn.discriminant_analysis:LinearDiscriminantAnalysis", "binary", {}),
        ("sklearn.semi_supervised:LabelSpreading", "binary", {}),
        ("sklearn.kernel_ridge:KernelRidge", "regression", {}),
    ],
)
def test_wrong_and_lacking_converters_of_scikit_learn_are_refused(reference, task, settings):
    name = reference.partition(":")[2]
    row = ROWS.get(name) or replace(ROWS["KNeighborsClassifier"], name=name, threads="", defaults={})
    with pytest.raises(LooplineError, match=r"apart|no converter|does not run"):
        probe_reference(row, reference, Path(), task, settings)


def test_trees_of_scikit_learn_that_learnt_from_gaps_are_refused():
    """Their converter sends every gap to the right."""
    row = replace(ROWS["RandomForestClassifier"], gaps=True)
    with pytest.raises(LooplineError, match="apart"):
        probe_reference(row, "sklearn.ensemble:RandomForestClassifier", Path(), "binary", {"n_estimators": 5})


def altered(change):
    """Functions of XGBoost whose graph has been changed: `change` gets the attributes of its trees as arrays."""

    def onnx_of_model(model, width, num_classes):
        graph = onnx.load_from_string(USUAL.onnx(model, width, num_classes))
        (trees,) = (node for node in graph.graph.node if node.op_type == "TreeEnsemble")
        columns = {part.name: part for part in trees.attribute}
        weights = numpy_helper.to_array(columns["leaf_weights"].t).copy()
        change(weights, columns["leaf_targetids"].ints, columns["nodes_missing_value_tracks_true"].ints)
        columns["leaf_weights"].t.CopyFrom(numpy_helper.from_array(weights, "weights"))
        return graph.SerializeToString()

    return USUAL._replace(onnx=onnx_of_model)


ROW = ROWS["XGBClassifier"]
USUAL = functions_of(ROW, "xgboost:XGBClassifier", Path())


def wrong_leaf(weights, targets, ways):
    weights[3] += 0.01


def wrong_class(weights, targets, ways):
    weights[np.array(targets) == 2] *= 1.1


def wrong_for_gaps(weights, targets, ways):
    ways[0] = 1 - ways[0]


@pytest.mark.parametrize("change", [wrong_leaf, wrong_class, wrong_for_gaps])
def test_a_graph_that_is_wrong_in_one_place_is_refused(change):
    with pytest.raises(LooplineError, match="apart from the fitted"):
        probed(ROW, altered(change), "multiclass")


def test_equal_models_with_unequal_bytes_are_refused():
    import itertools

    count = itertools.count()

    def fit(data, settings, before):
        return USUAL.fit(data, {**settings, "seed": next(count), "subsample": 0.5}, before)

    with pytest.raises(LooplineError, match="different bytes"):
        probed(ROW, USUAL._replace(fit=fit), "binary")


def test_a_spec_is_probed_for_its_task_or_for_all_that_it_learns(tmp_path):
    assert probe_tasks("sklearn.linear_model:Ridge", str(tmp_path), ["regression"], {"alpha": 2.0}) < 1e-6
    assert probe_tasks("sklearn.naive_bayes:GaussianNB", str(tmp_path), [], {}) < 1e-6
    with pytest.raises(LooplineError, match="learns regression, but the task is binary: take"):
        probe_tasks("sklearn.linear_model:Ridge", str(tmp_path), ["regression", "binary"], {})
