"""The result goes to JSON and back, and finds courses and loops."""

from __future__ import annotations

import pytest

from models.backtest.result import Backtest
from tests.synthetic_past import made_backtest


def test_to_json_and_back():
    found = made_backtest()
    assert Backtest.model_validate_json(found.model_dump_json()) == found


def test_courses_by_name():
    found = made_backtest()
    assert found.course("decay").policy == "decay"
    with pytest.raises(StopIteration):
        found.course("yearly")


def test_the_summary_names_the_recommended_policy_and_its_cost():
    found = made_backtest()
    assert found.recommended == "decay"
    assert found.summary == (
        "Take decay: mean accuracy 0.7797, regret 0, at most 0 by the interval; 1 loop, 10 device-seconds."
    )


def test_policies_that_had_the_same_champions_are_alike():
    assert made_backtest().alike() == [["never"], ["monthly", "every"], ["decay"]]
