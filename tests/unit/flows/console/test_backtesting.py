"""The table of a terminal and of an artifact: the recommendation first, a line a policy, every note."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.console.backtesting import as_markdown, print_backtest
from tests.synthetic_past import made_backtest


def test_the_terminal_leads_with_the_recommendation_and_tells_what_each_policy_did(capsys: pytest.CaptureFixture[str]):
    found = made_backtest()
    print_backtest(found, Path("/there/backtest.html"))
    out = capsys.readouterr().out
    assert out.strip().startswith(found.summary)
    for course in found.courses:
        assert f"  {course.policy}" in out
    assert "on decay; newest 300 rows: 2020-05 (decay: won)" in out
    assert "7 times decided not to" in out
    assert "Note: every training took the spec's own settings." in out
    assert "/there/backtest.html" in out


def test_the_artifact_is_a_table_of_markdown():
    found = made_backtest()
    lines = as_markdown(found).splitlines()
    assert lines[0] == f"# synthetic: {found.summary}"
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| ")] == [
        "policy", "never", "monthly", "decay", "every"
    ]  # fmt: skip
