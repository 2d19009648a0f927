"""The result goes to JSON and back, and finds courses and loops."""

from __future__ import annotations

import pytest

from models.backtest.result import Backtest
from tests.synthetic_past import made_backtest


def test_to_json_and_back():
    found = made_backtest()
    assert Backtest.model_validate_json(found.model_dump_json()) == found


def test_courses_by_name_and_loops_by_time():
    found = made_backtest()
    assert found.course("decay").policy == "decay"
    with pytest.raises(StopIteration):
        found.course("yearly")
    moments = [loop.at for _, loop in found.loops]
    assert moments == sorted(moments)
    assert {policy for policy, _ in found.loops} == {"monthly", "decay", "every"}


def test_policies_that_had_the_same_champions_are_alike():
    assert made_backtest().alike() == [["never"], ["monthly", "every"], ["decay"]]
