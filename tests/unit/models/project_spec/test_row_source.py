"""Rows of a team's file are read without running it, and checked alike before and after an import."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import UsageError
from models.project_spec.references import resolve
from models.project_spec.row_source import (
    FunctionName,
    RowForm,
    RowKey,
    checked_row,
    is_flag,
    is_function,
    is_row,
    one_of,
    read_row,
    row_name,
    some_of,
)

FORM = RowForm(
    "METRIC",
    {
        "value": RowKey("a function", is_function),
        "direction": one_of(("maximize", "minimize")),
        "tasks": some_of(("binary", "regression"), None),
        "weights": RowKey("True or False", is_flag, default=False),
    },
)
CODE = """\
from math import *
from pathlib import Path
import numpy as np
from numpy import mean as average

TASKS = ["binary"]
Path("ran.txt").touch()
wrapped = np.vectorize(len)


def cost(target, prediction):
    return 1.0


METRIC: dict = {"value": cost, "direction": "minimize", "tasks": TASKS}
OTHER_METRIC = {"value": average, "direction": "maximize", "weights": True}
WRAPPED_METRIC = {"value": wrapped, "direction": "maximize"}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "costs.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("METRIC", {"value": "cost", "direction": "minimize", "tasks": ["binary"], "weights": False}),
        ("OTHER_METRIC", {"value": "average", "direction": "maximize", "tasks": None, "weights": True}),
        ("WRAPPED_METRIC", {"value": "wrapped", "direction": "maximize", "tasks": None, "weights": False}),
    ],
)
def test_a_row_is_read_and_nothing_of_its_file_runs(base: Path, name: str, row: dict[str, object]) -> None:
    read = read_row(f"./costs.py:{name}", base, FORM, "goal.metric")
    assert read == row
    assert isinstance(read["value"], FunctionName)
    assert not (base / "ran.txt").exists()


def test_an_imported_row_fits_the_same_form(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base)
    row = checked_row(resolve("./costs.py:METRIC", base), FORM, "goal.metric: ./costs.py:METRIC")
    assert row["value"](0, 0) == 1.0
    assert row["tasks"] == ["binary"]


def test_a_row_is_known_by_its_capital_name() -> None:
    assert is_row("./costs.py:METRIC", "METRIC")
    assert is_row("shop.costs:RECALL_METRIC", "METRIC")
    assert not is_row("./costs.py:metric", "METRIC")
    assert not is_row("METRIC", "METRIC")


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("./costs.py:METRIC", "costs"),
        ("shop.costs:METRIC", "costs"),
        ("./costs.py:LATE_METRIC", "late"),
        ("./costs.py:late", "late"),
    ],
)
def test_a_row_goes_by_its_file_or_by_what_is_before_its_capital_name(reference: str, name: str) -> None:
    assert row_name(reference, "METRIC") == name


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"value": cost}', "'direction' is missing, expected one of maximize, minimize: add it"),
        ('{"value": cost, "direction": "up"}', "direction: got 'up', expected one of maximize, minimize"),
        ('{"value": "cost", "direction": "minimize"}', "value: got 'cost', expected a function"),
        ('{"valu": cost}', "a row METRIC has no key 'valu': did you mean 'value'?"),
        ('{"value": costs}', "the file defines no costs: did you mean 'cost'?"),
        ('{"value": cost, "direction": "minimize", "tasks": ["count"]}', "expected a list of some of binary"),
        ('{"value": lambda t, p: 1}', "got lambda t, p: 1, expected a literal or the name of a function"),
        ("{**OTHER_METRIC}", "got the key **, expected a text, written out"),
        ("dict(value=cost)", "dict(value=cost) is no dict, expected it written out: BAD_METRIC = {...}"),
    ],
)
def test_a_wrong_row_is_refused_with_the_cure(base: Path, row: str, message: str) -> None:
    (base / "costs.py").write_text(f"{CODE}\nBAD_METRIC = {row}\n")
    with pytest.raises(UsageError) as caught:
        read_row("./costs.py:BAD_METRIC", base, FORM, "goal.metric")
    assert str(caught.value).startswith("goal.metric: ./costs.py:BAD_METRIC: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("./gone.py:METRIC", "goal.metric: ./gone.py:METRIC: there is no "),
        ("./costs.py:MY_METRIC", "./costs.py has no 'MY_METRIC'"),
        ("./broken.py:METRIC", "broken.py is no Python"),
        ("no_such_package.rows:METRIC", "no module 'no_such_package': install it"),
    ],
)
def test_a_row_that_cannot_be_read_says_why(base: Path, reference: str, message: str) -> None:
    (base / "broken.py").write_text("def (")
    with pytest.raises(UsageError) as caught:
        read_row(reference, base, FORM, "goal.metric")
    assert message in str(caught.value)
