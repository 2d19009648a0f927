"""What a spec says of an estimator and cannot be is refused before anything runs, with the cure."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from models.errors import UsageError
from models.estimators import checks
from models.estimators.rows import ROWS
from models.project_spec.blocks import Spec
from models.training.spec_check import check_spec

ET, XGB, CAT = "sklearn.ensemble:ExtraTreesClassifier", "xgboost:XGBRegressor", "catboost:CatBoostClassifier"
KNN, RIDGE = "sklearn.neighbors:KNeighborsClassifier", "sklearn.linear_model:Ridge"
TO_NUMBER = {"target": "num", "task": "regression"}
BY_GROUP = {"split": {"by": "group", "column": "team"}}
ROWS_OF_FILE = "team,age,w,left,num\n" + "".join(
    f"{row % 5},{row},1,{'yes' if row % 2 else 'no'},{row * 37 % 101 / 7}\n" for row in range(60)
)


def _spec(net: str, blocks: dict[str, Any]) -> Spec:
    data = {"source": "data.csv", "target": "left", **blocks.get("data", {})}
    model = {"net": net, **blocks.get("model", {})}
    return Spec.model_validate({"name": "t", **blocks, "data": data, "model": model})


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checks, "version_of", lambda name: {"scikit-learn": "1.9.1", **_TRIED}[name])
    (tmp_path / "data.csv").write_text(ROWS_OF_FILE)
    (tmp_path / "loss.py").write_text("def focal(output, target): ...\n")
    return tmp_path


_TRIED = {"xgboost-cpu": "", "xgboost": "3.2.0", "catboost": "1.2.10", "skl2onnx": "1.20.0", "onnxmltools": "1.16.0"}


@pytest.mark.parametrize(
    ("net", "blocks", "message"),
    [
        ("sklearn.ensemble.ExtraTreesClassifier", {}, "expected a colon before the class: say 'sklearn.ensemble:Extra"),
        ("sklearn", {}, "model.net: got sklearn, expected a classifier or regressor by its package and class"),
        ("lightgbm:LGBMClassifier", {}, "LightGBM is a family of the product: say `net: trees`"),
        ("lightgbm.LGBMClassifier", {}, "say `net: trees`"),
        ("sklearn.ensemble:ExtraTreesRegressor", {}, "but the task is binary: take ExtraTreesClassifier"),
        (RIDGE, {"data": {**TO_NUMBER, **BY_GROUP, "task": "ranking"}}, "but the task is ranking: take trees"),
        (RIDGE, {"data": {**TO_NUMBER, "quantiles": [0.1, 0.9]}}, "learns regression, but the task is quantile: take"),
        (
            RIDGE,
            {"data": TO_NUMBER, "goal": {"metric": "pinball", "quantile": 0.9}},
            "learns no quantile: take trees, X",
        ),
        (ET, {"data": {"kind": "image", "image": {"height": 2, "width": 2}}}, "takes no data of kind image"),
        ("sklearn.svm:LinearSVC", {}, "answers with labels alone"),
        (
            ET,
            {"model": {"arguments": {"n_estimator": 3}}},
            "has no argument 'n_estimator': did you mean 'n_estimators'?",
        ),
        (
            ET,
            {"model": {"arguments": {"random_state": 3}}},
            "model.arguments.random_state: no spec sets it: leave it out; say",
        ),
        (
            XGB,
            {"data": TO_NUMBER, "model": {"arguments": {"rounds": 0}}},
            "model.arguments.rounds: got 0, expected a whole",
        ),
        (
            CAT,
            {"search": {"space": {"model.rounds": {"low": 1, "high": 9}}}},
            "search.space.model.rounds: got 1.0, expected",
        ),
        (ET, {"model": {"arguments": {"monotonic_cst": [1]}}}, "trees take such constraints by the columns' names"),
        (CAT, {"model": {"arguments": {"model_shrink_rate": 0.1}}}, "CatBoost cannot go on from a model with it"),
        (CAT, {"model": {"arguments": {"task_type": "GPU"}}}, "estimators are fitted on the CPU"),
        (
            ET,
            {"search": {"space": {"model.depth": {"low": 1, "high": 2}}}},
            "search.space.model.depth: sklearn.ensemble",
        ),
        (ET, {"search": {"space": {"train.lr": {"low": 0.1, "high": 0.2}}}}, "search.space.train.lr: has no effect"),
        (
            ET,
            {"search": {"trials": 0, "settings": {"model.depth": 1}}},
            "search.settings.model.depth: sklearn.ensemble",
        ),
        (
            KNN,
            {"data": {"weight": "w"}},
            "data.weight: sklearn.neighbors:KNeighborsClassifier takes no weights of rows",
        ),
        (KNN, {"train": {"class_weights": "balanced"}}, "train.class_weights: sklearn.neighbors:KNeighborsClassifier"),
        (
            "sklearn.linear_model:LogisticRegressionCV",
            {"data": BY_GROUP},
            "splits the rows that it learns from by chance",
        ),
        (ET, {"train": {"loss": "./loss.py:focal"}}, "train.loss: got ./loss.py:focal, but sklearn.ensemble"),
        (ET, {"train": {"lr": 0.1}}, "train.lr: is for nets trained by gradient descent"),
        (ET, {"train": {"batch": "auto"}}, "is for nets trained by gradient descent"),
        (ET, {"train": {"ranks": 2}}, "train.ranks: is for nets trained by gradient descent"),
        (ET, {"train": {"precision": "bf16"}}, "train.precision: is for nets trained by gradient descent"),
        (ET, {"train": {"ema": 0.9}}, "is for nets trained by gradient descent"),
    ],
)
def test_what_an_estimator_cannot_do_is_refused(base: Path, net: str, blocks: dict[str, Any], message: str) -> None:
    with pytest.raises((UsageError, ValueError)) as caught:
        check_spec(_spec(net, blocks), base)
    assert message in str(caught.value)


def test_a_task_that_the_rows_show_is_refused_where_the_family_stands(base: Path) -> None:
    blocks = {"search": {"families": ["trees", "sklearn.ensemble:ExtraTreesRegressor"]}}
    with pytest.raises(UsageError, match=r"search\.families: sklearn\.ensemble:ExtraTreesRegressor learns regression"):
        check_spec(_spec("auto", blocks), base)


def test_a_missing_distribution_of_a_row_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "version_of", lambda name: "")
    (base / "row.py").write_text(
        "def build(settings): ...\n"
        "FAMILY = {'estimator': build, 'tasks': ['binary'], 'output': 'scores', 'distributions': ['no-such']}\n"
    )
    with pytest.raises(UsageError, match=r"its package no-such is not installed: run `.* -m pip install no-such`"):
        check_spec(_spec("./row.py:FAMILY", {}), base)


@pytest.mark.parametrize(
    ("net", "blocks"),
    [
        (ET, {"model": {"arguments": {"max_depth": 3}}, "data": {"weight": "w", **BY_GROUP}}),
        (XGB, {"model": {"arguments": {"rounds": 30}}, "data": {**TO_NUMBER, "quantiles": [0.1, 0.9]}}),
        ("sklearn.linear_model:LogisticRegressionCV", {}),
        (ET, {"search": {"space": {"model.max_depth": {"low": 1, "high": 9, "integer": True}}}}),
    ],
)
def test_what_it_can_do_is_accepted(base: Path, net: str, blocks: dict[str, Any]) -> None:
    check_spec(_spec(net, blocks), base)


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        (
            {"xgboost-cpu": "", "xgboost": ""},
            "needs xgboost-cpu<3.3,>=3.2, which is not installed: run `make setup",
        ),
        ({"xgboost-cpu": "3.4.0"}, "needs xgboost-cpu<3.3,>=3.2, got 3.4.0: run `make setup EXTRAS=estimators`"),
        ({"xgboost": "2.1"}, "got 2.1: run `make setup EXTRAS=estimators`"),
        ({"onnxmltools": ""}, "needs onnxmltools<1.17,>=1.16, which is not installed"),
    ],
)
def test_a_missing_or_other_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], message: str
) -> None:
    monkeypatch.setattr(checks, "version_of", lambda name: {**_TRIED, **versions}[name])
    with pytest.raises(UsageError) as caught:
        checks.check_installed(XGB)
    assert message in str(caught.value)


def test_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["estimators"]
    declared = {(line := Requirement(text)).name: line.specifier for text in (*project["dependencies"], *extra)}
    for lines in checks.LIBRARIES.values():
        for text in lines:
            assert declared[Requirement(text).name] == Requirement(text).specifier
    assert {row.package for row in ROWS.values()} == checks.LIBRARIES.keys()
