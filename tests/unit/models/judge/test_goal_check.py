"""The goal is checked by the spec, and by the first rows of a table."""

import pytest

from models.errors import DataError, UsageError
from models.judge.goal_check import check_goal, check_goal_of_target
from models.project_spec.blocks import Spec


def test_a_positive_class_of_a_number_is_refused_as_soon_as_its_rows_are_seen(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{at},{at / 3}\n" for at in range(30)))
    spec = Spec.model_validate({"name": "a", "data": {"source": "rows.csv", "target": "y"}, "goal": {"positive": 1}})
    check_goal(spec, tmp_path)
    with pytest.raises(DataError, match=r"goal.positive: got '1', but the task is regression"):
        check_goal_of_target(spec, tmp_path / "rows.csv", tmp_path)


@pytest.mark.parametrize(
    ("metric", "good_enough", "message"),
    [
        ("accuracy", 2, "goal.good_enough: got 2, which no model reaches: accuracy is 1 at most"),
        ("log_loss", -0.1, "got -0.1, which no model reaches: log_loss is 0 at least"),
        ("cost(fp=1, fn=5)", -1, "0 at least"),
        (None, 1.5, "roc_auc is 1 at most"),
    ],
)
def test_a_goal_that_no_model_reaches_is_refused(tmp_path, metric, good_enough, message):
    (tmp_path / "rows.csv").write_text("x,y\n1,yes\n2,no\n")
    goal = {"metric": metric, "good_enough": good_enough}
    spec = Spec.model_validate({"name": "a", "data": {"source": "rows.csv", "target": "y"}, "goal": goal})
    with pytest.raises(UsageError, match=message):
        check_goal_of_target(spec, tmp_path / "rows.csv", tmp_path) if metric is None else check_goal(spec, tmp_path)


@pytest.mark.parametrize(("metric", "good_enough"), [("accuracy", 1), ("log_loss", 0), ("roc_auc", -1), (None, 0.9)])
def test_a_goal_at_the_end_of_a_metric_passes(tmp_path, metric, good_enough):
    (tmp_path / "rows.csv").write_text("x,y\n1,yes\n2,no\n")
    goal = {"metric": metric, "good_enough": good_enough}
    spec = Spec.model_validate({"name": "a", "data": {"source": "rows.csv", "target": "y"}, "goal": goal})
    check_goal(spec, tmp_path)
    assert check_goal_of_target(spec, tmp_path / "rows.csv", tmp_path) is None


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("./own.py:share", "goal.direction: needed for your own metric ./own.py:share: maximize or minimize"),
        ("./own.py:METRIC", "goal.metric: ./own.py:METRIC is for regression, expected one for binary"),
    ],
)
def test_a_metric_of_ones_own_is_read_before_a_run(tmp_path, metric, message):
    row = 'METRIC = {"value": share, "direction": "maximize", "tasks": ["regression"]}'
    (tmp_path / "own.py").write_text(
        f"raise RuntimeError('it ran')\n\n\ndef share(target, prediction): ...\n\n\n{row}\n"
    )
    (tmp_path / "rows.csv").write_text("x,y\n1,yes\n2,no\n")
    data = {"source": "rows.csv", "target": "y"}
    spec = Spec.model_validate({"name": "a", "data": data, "goal": {"metric": metric}})
    with pytest.raises(UsageError, match=message):
        check_goal(Spec.model_validate({**spec.model_dump(), "data": {**data, "task": "binary"}}), tmp_path)
    with pytest.raises(UsageError, match=message):
        check_goal_of_target(spec, tmp_path / "rows.csv", tmp_path)
