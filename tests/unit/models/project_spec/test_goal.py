"""The goal block: a metric has its parameters, and no others."""

import pytest
from pydantic import ValidationError

from models.project_spec.blocks import Spec
from models.project_spec.goal import Goal


def test_quantile_and_costs_are_part_of_the_reference():
    assert Goal(metric="pinball", quantile=0.9).reference == "pinball_0.9"
    assert Goal(costs={"false_positive": 1, "false_negative": 10}).reference == "cost_1_10"
    assert Goal(metric="mae").reference == "mae"
    assert Goal().reference is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metric": "mae", "quantile": 0.5}, "say `metric: pinball`"),
        ({"metric": "cost"}, "needs `costs`"),
        ({"metric": "f1", "costs": {"false_positive": 1, "false_negative": 2}}, "remove one of them"),
        ({"costs": {"false_positive": 0, "false_negative": 2}}, "greater than 0"),
        ({"metric": "pinball", "quantile": 1.0}, "less than 1"),
    ],
)
def test_what_does_not_go_together_is_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        Goal(**values)


def test_pinball_needs_a_quantile_of_the_goal_or_several_of_the_data():
    spec = {"name": "t", "goal": {"metric": "pinball"}, "data": {"source": "x.csv", "target": "y"}}
    with pytest.raises(ValidationError, match="pinball needs `quantile`"):
        Spec.model_validate(spec)
    spec["data"] |= {"quantiles": [0.1, 0.9]}
    assert Spec.model_validate(spec).goal.quantile is None
