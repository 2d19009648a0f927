"""The verdict as a document: valid JSON without NaN, strict about its fields."""

import json

import pytest
from pydantic import ValidationError

from models.judge.verdict import Estimate, Gate, Verdict
from models.project_spec.blocks import Judge


def verdict(**more):
    base = {
        "task": "regression",
        "metric": "mae",
        "direction": "minimize",
        "rules": Judge(),
        "num_samples": 3,
    }
    return Verdict(**{**base, "challenger": Estimate(value=1.0), **more})


def test_undefined_numbers_become_null_in_json():
    document = verdict(
        challenger=Estimate(value=float("nan"), low=float("inf")),
        metrics={"r2": {"challenger": float("nan")}},
    )
    read = json.loads(document.model_dump_json())
    assert read["challenger"] == {"value": None, "low": None, "high": None}
    assert read["metrics"] == {"r2": {"challenger": None}}
    assert Verdict.model_validate_json(document.model_dump_json()) == document


def test_a_verdict_promotes_only_by_decision_and_lists_the_gates_that_refused():
    gates = [Gate(name="goal", passed=True, reason="a"), Gate(name="size", passed=False, reason="b")]
    document = verdict(gates=gates, reasons=["Not promoted."])
    assert (document.promoted, document.sign, document.summary) == (False, -1, "Not promoted.")
    assert document.failed == gates[1:]


def test_unknown_fields_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        verdict(promote=True)
