import lightgbm
import numpy as np
import pytest

from models.data.preparation import Preparation
from models.errors import TrainingError
from models.export.trees import trees_part
from models.training.boosters import Boosters
from tests.finished_jobs import run_stretch, table_preparation

NUMERIC, CATEGORICAL = "core/numeric", "core/categorical"


def rows(count: int = 2000, seed: int = 0) -> np.ndarray:
    """Float32 numbers on a coarse grid, so that many equal a threshold's neighbours, and category indices."""
    rng = np.random.default_rng(seed)
    numbers = np.round(rng.normal(size=(count, 2)), 2).astype(np.float32)
    indices = np.stack([rng.integers(0, n, count) for n in (4, 4, 3)], axis=1)
    return np.hstack([numbers, indices]).astype(np.float64)


def grown(columns: np.ndarray, target: np.ndarray, num_trees: int = 20, **settings: object) -> lightgbm.Booster:
    quiet = {"verbosity": -1, "num_threads": 1, "seed": 0, "min_data_in_leaf": 5, "max_cat_to_onehot": 1}
    data = lightgbm.Dataset(columns, target, categorical_feature=[2, 3, 4], params={"verbosity": -1})
    return lightgbm.train({**quiet, **settings}, data, num_trees)


def raw_scores(booster: lightgbm.Booster, columns: np.ndarray, preparation: Preparation | None = None) -> np.ndarray:
    stretch, output = trees_part(booster.model_to_string(), preparation or table_preparation())
    feed = {NUMERIC: columns[:, :2].astype(np.float32), CATEGORICAL: columns[:, 2:].astype(np.int64)}
    (scores,) = run_stretch(stretch, feed, [output])
    assert scores.dtype == np.float64
    return scores


def score(columns: np.ndarray) -> np.ndarray:
    return columns[:, 0] + np.sin(3 * columns[:, 2]) * columns[:, 1] + 0.5 * (columns[:, 4] == 1)


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("binary", {}),
        ("binary", {"sigmoid": 2.5}),
        ("multiclass", {"num_class": 3}),
        ("regression", {}),
        ("regression_l1", {}),
        ("huber", {}),
        ("quantile", {"alpha": 0.9}),
    ],
)
def test_scores_are_those_of_lightgbm(objective: str, settings: dict[str, object]) -> None:
    columns = rows()
    value = score(columns)
    target = np.digitize(value, {"binary": [0.0], "multiclass": [-0.5, 0.5]}.get(objective, []))
    booster = grown(columns, value if objective[0] in "rhq" else target, objective=objective, **settings)
    expected = booster.predict(columns, raw_score=True) * settings.get("sigmoid", 1.0)
    scores = raw_scores(booster, columns)
    np.testing.assert_allclose(scores, expected.reshape(len(columns), -1), rtol=1e-12, atol=1e-12)


def test_values_that_equal_a_threshold_go_lightgbms_way() -> None:
    columns = rows()
    booster = grown(columns, score(columns), objective="regression")
    thresholds = booster.trees_to_dataframe()
    numeric = thresholds[thresholds["decision_type"] == "<="]["threshold"].astype(float).to_numpy()
    at = numeric.astype(np.float32)
    near = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))])
    edges = rows(len(near), seed=1)
    edges[:, 0] = edges[:, 1] = near
    np.testing.assert_allclose(raw_scores(booster, edges)[:, 0], booster.predict(edges), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("holes", [0.0, 0.2])
def test_missing_numbers_go_lightgbms_way(holes: float) -> None:
    columns = rows()
    target = score(columns)
    columns[np.random.default_rng(1).random(len(columns)) < holes, 0] = np.nan
    booster = grown(columns, target, objective="regression")
    asked = rows(500, seed=2)
    asked[::3, 0] = np.nan
    asked[::5, 1] = np.nan
    np.testing.assert_allclose(raw_scores(booster, asked)[:, 0], booster.predict(asked), rtol=1e-12, atol=1e-12)


def test_categories_that_no_tree_has_seen_go_lightgbms_way() -> None:
    columns = rows()
    booster = grown(columns[columns[:, 2] > 0], score(columns)[columns[:, 2] > 0], objective="regression")
    asked = columns.copy()
    asked[::2, 2] = 0
    asked[::3, 3] = 77
    np.testing.assert_allclose(raw_scores(booster, asked)[:, 0], booster.predict(asked), rtol=1e-12, atol=1e-12)


def test_many_categories_are_all_told_apart() -> None:
    rng = np.random.default_rng(4)
    columns = rows(6000)
    columns[:, 3] = rng.integers(0, 300, len(columns))
    effect = rng.normal(size=300)
    booster = grown(columns, effect[columns[:, 3].astype(int)], objective="regression", min_data_per_group=5)
    scores = raw_scores(booster, columns)[:, 0]
    np.testing.assert_allclose(scores, booster.predict(columns), rtol=1e-12, atol=1e-12)
    assert len(np.unique(scores)) > 20


def test_trees_of_a_single_leaf_give_their_value() -> None:
    columns = rows(50)
    booster = grown(columns, np.full(50, 3.0), 2, objective="regression")
    np.testing.assert_allclose(raw_scores(booster, columns), 3.0)


def test_one_kind_of_column_is_enough() -> None:
    columns = rows()[:, :2]
    data = lightgbm.Dataset(columns, columns[:, 0], params={"verbosity": -1})
    booster = lightgbm.train({"verbosity": -1, "num_threads": 1, "objective": "regression"}, data, 3)
    numbers_only = table_preparation().with_inputs("categorical", [])
    stretch, output = trees_part(booster.model_to_string(), numbers_only)
    (scores,) = run_stretch(stretch, {NUMERIC: columns.astype(np.float32)}, [output])
    np.testing.assert_allclose(scores[:, 0], booster.predict(columns), rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "poisson"}, "poisson"),
        ({"objective": "regression", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "averaged"),
        ({"objective": "regression", "reg_sqrt": True}, "sqrt"),
        ({"objective": "regression", "zero_as_missing": True}, "zero_as_missing"),
    ],
)
def test_trees_that_would_be_read_wrongly_are_refused(settings: dict[str, object], message: str) -> None:
    columns = rows(300)
    booster = grown(columns, np.abs(score(columns)), 2, **settings)
    with pytest.raises(TrainingError, match=message):
        trees_part(booster.model_to_string(), table_preparation("regression"))


@pytest.mark.parametrize("num_trees", [1, 12])
def test_several_boosters_have_an_output_each(num_trees: int) -> None:
    columns = rows()
    boosters = Boosters(
        [grown(columns, score(columns) * factor, num_trees, objective="regression") for factor in (1.0, -3.0)]
    )
    text = boosters.to_text()
    stretch, output = trees_part(text, table_preparation())
    feed = {NUMERIC: columns[:, :2].astype(np.float32), CATEGORICAL: columns[:, 2:].astype(np.int64)}
    (scores,) = run_stretch(stretch, feed, [output])
    expected = Boosters.of_text(text).raw(columns, 0, -1, threads=1)
    assert expected.shape == (len(columns), 2)
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-12)
    half = Boosters.of_text(text).raw(columns, 0, num_trees // 2, threads=1) if num_trees > 1 else 0
    rest = Boosters.of_text(text).raw(columns, num_trees // 2, num_trees, threads=1)
    np.testing.assert_allclose(half + rest, expected, atol=1e-12)
