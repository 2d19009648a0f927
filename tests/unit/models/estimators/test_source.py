"""Facts of a class are those that Python finds after an import, which the reader does without."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import ClassifierMixin

from models.errors import UsageError
from models.estimators.rows import CLASSES, NUMBERS
from models.estimators.source import EstimatorClass, estimator_class, row_of_source
from models.installation import version_of
from models.project_spec.syntax import REQUIRED, UNKNOWN

KNOWN = [
    ("sklearn.ensemble", "ExtraTreesClassifier"),
    ("sklearn.ensemble", "HistGradientBoostingRegressor"),
    ("sklearn.ensemble", "StackingClassifier"),
    ("sklearn.linear_model", "LogisticRegression"),
    ("sklearn.linear_model", "LassoCV"),
    ("sklearn.neighbors", "KNeighborsClassifier"),
    ("sklearn.naive_bayes", "GaussianNB"),
    ("sklearn.svm", "SVC"),
]


def _class(module: str, name: str) -> EstimatorClass:
    facts = estimator_class(module, name)
    assert facts is not None
    return facts


@pytest.mark.parametrize(("module", "name"), KNOWN)
def test_the_source_says_what_the_import_says(module: str, name: str) -> None:
    facts, imported = _class(module, name), getattr(importlib.import_module(module), name)
    signature = inspect.signature(imported.__init__).parameters
    assert [*facts.arguments] == [parameter for parameter in signature if parameter != "self"]
    for argument, default in facts.arguments.items():
        expected = signature[argument].default
        assert default is UNKNOWN or default == (REQUIRED if expected is inspect.Parameter.empty else expected)
    assert facts.takes_weights == ("sample_weight" in inspect.signature(imported.fit).parameters)
    assert facts.tasks == (CLASSES if issubclass(imported, ClassifierMixin) else NUMBERS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("LogisticRegression", "probabilities"), ("RidgeClassifier", "labels"), ("SGDClassifier", "labels")],
)
def test_whether_a_classifier_gives_probabilities(name: str, expected: str) -> None:
    assert _class("sklearn.linear_model", name).output == expected


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("sklearn.preprocessing", "StandardScaler"),
        ("sklearn.cluster", "KMeans"),
        ("sklearn.svm", "OneClassSVM"),
        ("sklearn.pipeline", "Pipeline"),
        ("sklearn.svm", "l1_min_c"),
        ("sklearn.svm", "Nothing"),
        ("sklearn.nothing", "SVC"),
        ("no_such_package", "SVC"),
    ],
)
def test_what_is_no_estimator_has_no_facts(module: str, name: str) -> None:
    assert estimator_class(module, name) is None


def test_arguments_that_a_constructor_passes_on_are_those_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "own_boosting"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "try:\n    from .deep import Boosted as Boosted\nexcept ImportError:\n    pass\n"
    )
    (package / "deep" / "__init__.py").write_text("from ._core import *\nfrom ._core import Boosted\n")
    (package / "deep" / "_core.py").write_text(
        "from ..base import Base\nfrom sklearn.base import RegressorMixin\nfrom nowhere import Gone\n"
        "class Boosted(RegressorMixin, Gone, Base):\n    def __init__(self, *, loss='l2', **kwargs): ...\n"
    )
    (package / "base.py").write_text(
        "LEAVES = 31\nclass Base:\n    def __init__(self, steps, leaves=LEAVES, **more): ...\n"
        "    def fit(self, X, y, sample_weight=None): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = EstimatorClass(NUMBERS, {"loss": "l2", "steps": REQUIRED, "leaves": UNKNOWN}, True, "scores")
    assert _class("own_boosting", "Boosted") == expected


@pytest.mark.parametrize(
    ("reference", "facts"),
    [
        ("sklearn.ensemble:ExtraTreesClassifier", {"gaps": False, "weights": True, "seed": "random_state"}),
        ("sklearn.naive_bayes:GaussianNB", {"categories": "one-hot", "space": {}, "seed": ""}),
        ("sklearn.linear_model:LassoCV", {"own_split": True, "tasks": NUMBERS}),
        ("sklearn.linear_model:RidgeClassifierCV", {"output": "labels"}),
    ],
)
def test_the_row_of_a_class(reference: str, facts: dict[str, object]) -> None:
    row = row_of_source(reference, Path())
    assert {name: getattr(row, name) for name in facts} == facts
    assert row.arguments


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("sklearn.ensemble:ExtraTreeClasifier", "did you mean 'sklearn.ensemble:ExtraTreesClassifier'?"),
        ("sklearn.linear_model:RandomForestClassifier", "did you mean 'sklearn.ensemble:RandomForestClassifier'?"),
        ("sklearn.ensamble:RandomForestRegressor", "did you mean 'sklearn.ensemble:RandomForestRegressor'?"),
        ("sklearn.ensemble:Foo", "sklearn has no such class there: expected a classifier or regressor by its package"),
        ("sklearn.preprocessing:StandardScaler", "or a torch net of your own, such as ./net.py:Net; a pipeline comes"),
        ("sklearn.ensemble:StackingClassifier", "needs 'estimators', which no spec can write"),
    ],
)
def test_a_class_that_has_no_row_is_refused_with_the_cure(reference: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        row_of_source(reference, Path())
    assert str(caught.value).startswith(f"model.net: {reference}")
    assert message in str(caught.value)


def test_nothing_is_imported() -> None:
    code = (
        "import sys; from models.estimators.source import estimator_class\n"
        "assert estimator_class('sklearn.ensemble', 'ExtraTreesClassifier')\n"
        "assert not {'sklearn', 'numpy', 'scipy', 'torch'} & {*sys.modules}, 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])


def test_a_version_is_that_of_the_distribution() -> None:
    assert version_of("numpy") == importlib.metadata.version("numpy")
    assert version_of("no-such-distribution") == ""
