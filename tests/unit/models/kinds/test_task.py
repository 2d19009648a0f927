"""Every task has a row under its own name; a refusal says what to do instead."""

from typing import get_args

import pytest

from models.kinds.task import TASK_NAMES, TASKS, Link, PerLink, PerTask, Task, refusal


@pytest.mark.parametrize("task", TASK_NAMES)
def test_a_row_stands_under_its_own_name(task: Task) -> None:
    assert TASKS[task].name == task


def test_tables_have_a_key_for_every_task_and_every_link() -> None:
    assert PerTask.__required_keys__ == {*TASK_NAMES}
    assert PerLink.__required_keys__ == {*get_args(Link)}


def test_each_flag_lets_in_the_tasks_that_its_docstring_names() -> None:
    def tasks(flag: str) -> set[str]:
        return {task for task in TASK_NAMES if getattr(TASKS[task], flag)}

    assert tasks("is_number") == {"regression", "quantile", "ranking"}
    assert tasks("is_grouped") == {"ranking"}
    assert tasks("has_classes") == {"binary", "multiclass"}
    assert tasks("has_positive") == {"binary"}


def test_a_use_is_refused_by_the_tasks_that_say_why() -> None:
    assert "one net" in refusal("ranking", "ensemble")
    assert refusal("binary", "ensemble") == ""
    assert refusal(None, "ensemble") == "", "a spec without a task is asked again once the data names one"
