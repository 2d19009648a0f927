"""The row of an estimator by reference: its search space, the settings of its first trial, its libraries."""

from pathlib import Path

import pytest

from models.errors import UsageError
from models.nets.catalogue import full_row_of, row_of
from models.project_spec.search import Dimension

FOREST = "sklearn.ensemble:ExtraTreesClassifier"


def test_a_listed_class_has_the_space_of_the_table() -> None:
    row = full_row_of(FOREST, Path())
    assert row.space["model.min_samples_leaf"] == Dimension(low=1, high=50, log=True, integer=True)
    assert (row.defaults["model.min_samples_leaf"], row.libraries) == (2, ("scikit-learn",))
    assert (row.fit, row_of(FOREST).space) == (row_of(FOREST).fit, {}), "the name alone tells no space"


def test_a_class_that_is_not_listed_has_no_space() -> None:
    assert full_row_of("sklearn.linear_model:PassiveAggressiveClassifier", Path()).space == {}


def test_of_two_builds_of_a_library_the_one_that_is_there_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "xgboost":
            raise importlib.metadata.PackageNotFoundError(name)
        return "3.2.0"

    import importlib.metadata

    pytest.importorskip("xgboost", reason="make setup EXTRAS=estimators")
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert full_row_of("xgboost:XGBClassifier", Path()).libraries == ("xgboost",)


def test_a_row_of_a_file_says_its_own(tmp_path: Path) -> None:
    row = '"tasks": ["binary"], "output": "probabilities", "arguments": {"depth": 6}'
    function = "def estimator(settings):\n    pass\n\n\n"
    (tmp_path / "own.py").write_text(
        f'{function}FAMILY = {{"estimator": estimator, {row}, "space": {{"depth": {{}}}}}}'
    )
    with pytest.raises(UsageError, match="depth"):
        full_row_of("./own.py:FAMILY", tmp_path)
    space = '"space": {"depth": {"choices": [4, 6]}}, "distributions": ["numpy", "not-installed"]'
    space += ', "modules": ["sklearn", "own_package"]'
    (tmp_path / "own.py").write_text(f'{function}FAMILY = {{"estimator": estimator, {row}, {space}}}')
    full = full_row_of("./own.py:FAMILY", tmp_path)
    assert full.space == {"model.depth": Dimension(choices=[4, 6])}
    assert (full.defaults, full.libraries) == ({"model.depth": 6}, ("numpy",))
    assert full.modules == ("sklearn", "skl2onnx"), "what the fork server imports once is no code of a team's"


@pytest.mark.parametrize("net", ["trees", "./net.py:Net"])
def test_ready_nets_and_own_nets_have_their_row_alone(net: str) -> None:
    assert full_row_of(net, Path()) is row_of(net)
