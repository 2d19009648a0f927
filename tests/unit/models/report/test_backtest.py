"""The backtest's page: the recommendation first, every policy, every reason not to retrain, and nothing fetched."""

from __future__ import annotations

import re

from models.report.backtest import render_backtest, rounded
from tests.synthetic_past import made_backtest


def test_the_page_leads_with_the_recommendation_and_holds_all_it_shows():
    found = made_backtest()
    page = render_backtest(found)
    assert found.summary in page.replace("&#39;", "'")
    for course in found.courses:
        assert f"<h3>{course.policy}</h3>" in page
    assert page.count("<figure>") == 4
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert len(page) < 600_000


def test_loops_and_decisions_not_to_retrain_are_told_with_their_reasons():
    page = render_backtest(made_backtest())
    assert "decay: metric .6 under .8" in page
    assert "decay begins no loop: retrain.on names nothing" in page
    assert "7 decisions not to retrain" in page


def test_what_users_write_is_escaped():
    found = made_backtest()
    evil = found.model_copy(update={"notes": ["<b>bold</b>"], "project": "<i>x</i>"})
    page = render_backtest(evil)
    assert "<b>bold</b>" not in page
    assert "&lt;i&gt;x" in page


def test_the_light_is_green_only_where_every_cheaper_policy_is_shown_to_be_worse():
    found = made_backtest()
    assert 'class="light green"' in render_backtest(found)
    unsure = [
        each.model_copy(update={"regret": each.regret.model_copy(update={"low": -0.1})})
        for each in found.policy_regrets
    ]
    assert 'class="light amber"' in render_backtest(found.model_copy(update={"policy_regrets": unsure}))


def test_a_short_past_is_amber_whatever_it_shows():
    found = made_backtest()
    short = [each.model_copy(update={"points": each.points[:5]}) for each in found.policy_regrets]
    page = render_backtest(
        found.model_copy(
            update={
                "periods": found.periods[:5],
                "policy_regrets": short,
                "courses": [course.model_copy(update={"steps": course.steps[:5]}) for course in found.courses],
            }
        )
    )
    assert 'class="light amber"' in page


def test_differences_have_the_decimals_of_their_metric():
    like = made_backtest().policy_regrets[0]
    assert rounded(-8.5e-05, like) == "−0.0001"
    assert rounded(1e-9, like) == "0.0000"
    large = like.model_copy(update={"mean": like.mean.model_copy(update={"value": 1234.0})})
    assert rounded(3.21, large) == "3"
    assert rounded(None, like) == "–"
