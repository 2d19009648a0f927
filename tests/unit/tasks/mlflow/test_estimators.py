"""Tags of estimators: those that MLflow's users look for."""

from importlib.metadata import version
from pathlib import Path

from tasks.mlflow.estimators import estimator_tags

FOREST, LOGISTIC = "sklearn.ensemble:ExtraTreesClassifier", "sklearn.linear_model:LogisticRegression"


def test_an_estimator_is_told_by_class_library_and_version() -> None:
    assert estimator_tags([FOREST], Path()) == {
        "estimator_name": "ExtraTreesClassifier",
        "estimator_class": "sklearn.ensemble.ExtraTreesClassifier",
        "loopline.libraries": f"scikit-learn {version('scikit-learn')}",
    }


def test_of_an_ensemble_each_estimator_is_told(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def estimator(settings):\n    pass\n\n\n"
        'FAMILY = {"estimator": estimator, "tasks": ["binary"], "output": "scores", "distributions": ["numpy"]}\n'
    )
    tags = estimator_tags(["trees", "./own.py:FAMILY", LOGISTIC], tmp_path)
    assert tags["estimator_name"] == "own, LogisticRegression"
    assert tags["estimator_class"] == "./own.py:FAMILY, sklearn.linear_model.LogisticRegression"
    assert estimator_tags([FOREST, FOREST], tmp_path)["estimator_name"] == f"{FOREST.partition(':')[2]}, " + (
        f"{FOREST.partition(':')[2]}-2"
    )
    assert tags["loopline.libraries"].startswith(f"numpy {version('numpy')}, scikit-learn ")


def test_nets_and_trees_have_none() -> None:
    assert estimator_tags(["trees", "mlp", "./net.py:Net"], Path()) == {}
