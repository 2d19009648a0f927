"""Pictures of a backtest: SVG that names what it shows, the same bytes for the same numbers, gaps left as gaps."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from models.report.backtest_figures import loops_over_time, metric_over_time, regrets, spent
from tests.synthetic_past import made_backtest

pytestmark = pytest.mark.usefixtures("pictures")

PICTURES = (metric_over_time, loops_over_time, regrets, spent)


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_a_picture_names_every_policy_and_draws_the_same_twice(draw):
    found = made_backtest()
    svg = draw(found)
    ET.fromstring(svg)
    for course in found.courses:
        assert course.policy.encode() in svg
    assert draw(found) == svg


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_an_undefined_metric_leaves_a_gap(draw):
    found = made_backtest()
    nothing = {"value": None, "low": None, "high": None}
    holes = [
        each.model_copy(
            update={
                "mean": each.mean.model_copy(update=nothing),
                "regret": each.regret.model_copy(update=nothing),
                "points": [
                    point.model_copy(update={"metric": point.metric.model_copy(update=nothing)})
                    for point in each.points
                ],
            }
        )
        for each in found.policy_regrets
    ]
    ET.fromstring(draw(found.model_copy(update={"policy_regrets": holes})))


def test_one_policy_and_no_loop_are_drawn():
    for draw in PICTURES:
        ET.fromstring(draw(made_backtest(policies=("never",))))
