"""The row of a team's own family is read from its file, and what cannot be is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import UsageError
from models.estimators.own_row import own_row
from models.estimators.source import row_of_source

CODE = """\
import no_such_library


def fit(data, settings, before): ...
def predict(model, x): ...
def onnx(model, width): ...
def pipe(settings): ...


FAMILY = {
    "fit": fit,
    "predict": predict,
    "onnx": onnx,
    "output": "scores",
    "tasks": ["binary", "regression", "quantile"],
    "numbers": "standardised",
    "gaps": True,
    "arguments": {"depth": 6, "shrink": 0.1},
    "space": {"depth": {"low": 2, "high": 8, "integer": True}},
    "rounds": 50,
    "modules": ["numpy"],
}
"""
THREE = '"fit": fit,\n    "predict": predict,\n    "onnx": onnx'


def _row_of(folder: Path, code: str) -> None:
    (folder / "boosted.py").write_text(code)
    own_row("./boosted.py:FAMILY", folder, "model.net")


def test_the_row_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "boosted.py").write_text(CODE)
    row = row_of_source("./boosted.py:FAMILY", tmp_path)
    assert (row.name, row.package, row.output, row.numbers) == ("boosted", "file", "scores", "standardised")
    assert row.tasks == ("binary", "regression", "quantile")
    assert row.arguments == ("depth", "shrink")
    assert row.defaults == {"depth": 6, "shrink": 0.1}
    assert (row.gaps, row.categories, row.weights) == (True, "index", True)
    assert (row.rounds, row.num_rounds, row.quantile) == ("rounds", 50, "quantile")


def test_an_estimator_learns_at_once(tmp_path: Path) -> None:
    (tmp_path / "boosted.py").write_text(CODE.replace(THREE, '"estimator": pipe'))
    row = row_of_source("./boosted.py:FAMILY", tmp_path)
    assert row.rounds == ""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"tasks"', '"task"', "a row FAMILY has no key 'task': did you mean 'tasks'? (line 15)"),
        ('    "output": "scores",\n', "", "'output' is missing, expected one of probabilities, scores: add it"),
        ('"scores"', '"score"', "output: got 'score', expected one of probabilities, scores (line 14)"),
        ('"binary"', '"ranking"', "tasks: got ['ranking', 'regression', 'quantile'], expected a list"),
        ('"fit": fit', '"fit": fitt', "the file defines no fitt: did you mean 'fit'? (line 11)"),
        ('"fit": fit', '"fit": "fit"', "fit: got 'fit', expected a function of the file (line 11)"),
        ('    "onnx": onnx,\n', "", "got fit, predict, expected fit, predict and onnx, or estimator in their place"),
        (THREE, '"fit": fit, "estimator": pipe', "got fit, estimator, expected fit, predict and onnx"),
        (f"    {THREE},\n", "", "got no function, expected fit, predict and onnx"),
        ("settings, before", "settings", "fit takes 2 arguments, expected fit(data, settings, before) (line 4)"),
        ('"arguments": {', '"arguments": {"seed": 1, ', "arguments: 'seed' is a setting that Loopline hands over"),
        ('{"depth": {', '{"dept": {', "space: 'dept' is no argument of the row: did you mean 'depth'?"),
        ('"low": 2', '"low": 9', "space: got {'depth': {'low': 9"),
        ("50", "5 * 10", "got 5 * 10, expected a literal"),
        ("50", "0", "rounds: got 0, expected a whole number above 0 (line 20)"),
    ],
)
def test_a_wrong_row_is_refused(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        _row_of(tmp_path, CODE.replace(right, wrong))
    assert str(caught.value).startswith("model.net: ./boosted.py:FAMILY: ")
    assert message in str(caught.value)
