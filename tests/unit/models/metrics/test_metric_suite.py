"""The suite of metrics passes ready metrics, and finds what is wrong with a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.data.target_encoding import OutputColumn
from models.kinds.task import TASKS
from models.metrics.metric_suite import CLAIMS, EXAMPLES, metric_claims
from models.metrics.metrics import metrics_for
from models.project_spec.conformance import outcomes

CODE = """\
import itertools
import numpy as np

calls = itertools.count()


def error(target, prediction):
    return float(np.abs(target - prediction).mean())


def weighed(target, prediction, weight):
    return float((weight * np.abs(target - prediction)).sum() / weight.sum())


def unweighed(target, prediction, weight):
    return error(target, prediction)


def counting(target, prediction):
    return float(next(calls))


def sorting(target, prediction, weight):
    prediction.sort()
    return 1.0


def first(target, prediction):
    return float(target[0])


def raising(target, prediction):
    raise ValueError("no")


"""

OUTPUTS = {
    "multilabel": [OutputColumn(name=name, column=name) for name in ("hot", "wet")],
    "quantile": [OutputColumn(name=f"q{level}", column="y", quantile=level) for level in (0.1, 0.9)],
}


def failed(tmp_path: Path, row: str) -> list[str]:
    (tmp_path / "m.py").write_text(f"{CODE}METRIC = {row}\n")
    return [outcome.claim for outcome in outcomes(metric_claims("./m.py:METRIC", tmp_path)) if outcome.error]


def test_each_ready_metric_passes_for_each_of_its_tasks() -> None:
    for task in TASKS:
        predictions = EXAMPLES[task](np.random.default_rng(0))
        for metric in metrics_for(task, OUTPUTS.get(task, [])):
            for check in CLAIMS.values():
                check(metric, predictions)


@pytest.mark.parametrize(
    ("row", "claims"),
    [
        ('{"value": error, "direction": "minimize", "tasks": ["regression", "quantile", "binary"]}', []),
        ('{"value": weighed, "direction": "minimize", "tasks": ["regression"], "weights": True}', []),
        ('{"value": error, "direction": "maximize", "tasks": ["regression"]}', ["right predictions are no worse"]),
        (
            '{"value": unweighed, "direction": "minimize", "tasks": ["regression"], "weights": True}',
            ["a row of weight 2"],
        ),
        ('{"value": first, "direction": "minimize", "tasks": ["regression"]}', ["the order"]),
        (
            '{"value": sorting, "direction": "minimize", "tasks": ["regression"], "weights": True}',
            ["it returns the same again"],
        ),
        ('{"value": raising, "direction": "minimize", "tasks": ["binary"]}', [*CLAIMS]),
    ],
)
def test_what_a_row_breaks_is_named(tmp_path: Path, row: str, claims: list[str]) -> None:
    broken = failed(tmp_path, row)
    assert len(broken) == len(claims)
    assert all(text.partition(": ")[2].startswith(claim) for text, claim in zip(broken, claims, strict=True))


def test_a_value_that_changes_is_named(tmp_path: Path) -> None:
    broken = failed(tmp_path, '{"value": counting, "direction": "minimize", "tasks": ["regression"]}')
    assert "regression: it returns the same again and leaves its arguments alone" in broken


def test_a_row_that_cannot_be_read_is_the_only_outcome(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"{CODE}METRIC = {{}}\n")
    (outcome,) = outcomes(metric_claims("./m.py:METRIC", tmp_path))
    assert "METRIC: ./m.py:METRIC: 'value' is missing" in outcome.error
