"""The goal is checked by the spec, and by the first rows of a table."""

import pytest

from models.errors import DataError
from models.judge.goal_check import check_goal, check_goal_of_target
from models.project_spec.blocks import Spec


def test_a_positive_class_of_a_number_is_refused_as_soon_as_its_rows_are_seen(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{at},{at / 3}\n" for at in range(30)))
    spec = Spec.model_validate({"name": "a", "data": {"source": "rows.csv", "target": "y"}, "goal": {"positive": 1}})
    check_goal(spec, tmp_path)
    with pytest.raises(DataError, match=r"goal.positive: got '1', but the task is regression"):
        check_goal_of_target(spec, tmp_path / "rows.csv", tmp_path)
