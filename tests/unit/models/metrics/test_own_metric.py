"""A metric that a team brings: a function or a row, checked before a run and used in place of a ready one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from models.errors import UsageError
from models.metrics.metrics import resolve_metric
from models.metrics.own_metric import read_metric

CODE = """\
import numpy as np


def late(target, prediction):
    return float(np.mean(prediction))


def share(target, prediction, weight):
    if not weight.sum():
        raise ValueError("no weight")
    return float((weight * (prediction > 0.5)).sum() / weight.sum())


METRIC = {"value": late, "direction": "minimize", "tasks": ["binary", "regression"]}
SHARE_METRIC = {"value": share, "direction": "maximize", "weights": True}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "costs.py").write_text(CODE)
    return tmp_path


def test_a_row_says_its_direction_and_goes_by_the_name_of_its_file(base: Path) -> None:
    metric = resolve_metric("./costs.py:METRIC", "binary", base)
    assert (metric.name, metric.direction, metric.tasks, metric.takes_weights) == (
        *("costs", "minimize", ("binary",)),
        False,
    )
    assert metric.value(np.zeros(2), np.array([0.2, 0.8]), np.array([3.0, 1.0])) == pytest.approx(0.35)


def test_a_row_with_weights_gets_them_and_is_undefined_where_it_raises(base: Path) -> None:
    metric = resolve_metric("./costs.py:SHARE_METRIC", "regression", base)
    assert (metric.name, metric.takes_weights) == ("share", True)
    value = metric.evaluator(np.zeros(2), np.array([0.2, 0.8]))
    assert value(np.array([0.5, 1.5])) == 0.75
    assert math.isnan(value(np.zeros(2)))


@pytest.mark.parametrize(
    ("reference", "task", "direction", "message"),
    [
        ("./costs.py:METRIC", "multiclass", None, "goal.metric: ./costs.py:METRIC is for binary and regression, expec"),
        ("./costs.py:METRIC", "binary", "maximize", "goal.direction: got 'maximize', but ./costs.py:METRIC is to min"),
        ("./costs.py:METRIC", None, "maximize", "goal.direction: got 'maximize'"),
        ("./costs.py:late", "binary", None, "goal.direction: needed for your own metric ./costs.py:late"),
    ],
)
def test_what_does_not_fit_the_goal_is_refused_before_and_at_the_import(
    base: Path, reference: str, task: str, direction: str | None, message: str
) -> None:
    with pytest.raises(UsageError) as before:
        read_metric(reference, base, task, direction)
    assert str(before.value).startswith(message)
    if task is not None:
        with pytest.raises(UsageError) as imported:
            resolve_metric(reference, task, base, direction)
        assert str(before.value).removesuffix(" (line 16)") == str(imported.value)  # what is imported has no lines
