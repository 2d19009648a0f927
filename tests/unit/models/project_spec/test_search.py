"""The rules of the `search` block: each constraint refuses what it says it refuses."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.project_spec.search import Search

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"trials": -1}, "greater than or equal to 0"),
    ({"sample": 0.0}, "greater than 0"),
    ({"sample": 1.5}, "less than or equal to 1"),
    ({"space": {"lr": {"low": 0.1, "high": 1.0}}}, "cannot search 'lr'"),
    ({"space": {"data.split.seed": {"low": 0.1, "high": 1.0}}}, "cannot search"),
    ({"space": {"train.lr": {"low": 1.0, "high": 0.1}}}, "must be under"),
    ({"space": {"train.lr": {"low": 1.0}}}, "either `choices`"),
    ({"space": {"train.lr": {}}}, "either `choices`"),
    ({"space": {"train.lr": {"low": 0.1, "high": 1.0, "choices": [1]}}}, "either `choices`"),
    ({"space": {"train.lr": {"low": 0.0, "high": 1.0, "log": True}}}, "low > 0"),
    ({"space": {"train.lr": {"low": 1, "high": 2, "log": True, "step": 0.1}}}, "drop `log` or `step`"),
    ({"space": {"model.x": {"low": 1, "high": 9, "integer": True, "step": 0.5}}}, "whole step, got 0.5"),
    ({"space": {"model.x": {"low": 0.5, "high": 9, "integer": True, "log": True}}}, "say `low: 1`"),
    ({"space": {"model.x": {"low": 1, "high": 9, "integer": True, "log": True, "step": 2}}}, "no step"),
    ({"space": {"train.lr": {"choices": []}}}, "at least 1"),
    ({"settings": {"train.lr": 0.1}}, "say `trials: 0`"),
]


@pytest.mark.parametrize(("block", "words"), REFUSED, ids=[str(block)[:60] for block, _ in REFUSED])
def test_refused(block: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Search.model_validate(block)


@given(low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), integer=st.booleans())
def test_every_range_with_low_under_high_is_taken(low: float, width: float, integer: bool) -> None:
    space = {"model.width": {"low": low, "high": low + width, "integer": integer}}
    assert Search.model_validate({"space": space}).space is not None


@pytest.mark.parametrize(
    ("dimension", "message"),
    [
        ({"low": 1, "high": 10**30, "integer": True}, "expected 2147483647 at most"),
        ({"low": 1, "high": 10**400, "integer": True}, "valid number"),
        ({"low": 0.1, "high": 1e30, "step": 0.1}, "more than 100,000 values: take a larger `step`"),
    ],
)
def test_a_dimension_that_no_grid_can_list_is_refused(dimension: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Search.model_validate({"sampler": "grid", "space": {"train.lr": dimension}})
