"""A shadow goes over what is in the log, once, and what it said lies beside what was answered."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from models.serving.served import Served
from tasks.runtime import shadows
from tasks.runtime.predictions import prediction_log
from tasks.serve.shadow import answer_new
from tests.served_models import write_served

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def log(state, ids, version="1", task="binary", **columns):
    count = len(ids)
    scores = [[0.2, 0.3, 0.5]] * count if task == "multiclass" else None
    table = {
        "id": pa.array(ids),
        "at": pa.array([NOON + timedelta(seconds=number) for number in range(count)], pa.timestamp("us", tz="UTC")),
        "version": pa.array([version] * count),
        "score": pa.nulls(count, pa.float64()) if scores else pa.array([0.25] * count),
        "scores": pa.array(scores, pa.list_(pa.float64())) if scores else pa.nulls(count, pa.list_(pa.float64())),
        "input.x": pa.array([0.0, np.nan, 2.0][:count]),
        "input.c": pa.array(["u", "", "w"][:count]),
        **columns,
    }
    prediction_log(state).append(pa.table({name: values for name, values in table.items() if values is not None}))


@pytest.fixture(params=["binary", "multiclass"])
def task(request):
    return request.param


def served(tmp_path, task="binary"):
    write_served(tmp_path / "2", task)
    return Served("tiny", "2", tmp_path / "2")


def test_each_row_is_answered_once(tmp_path, task):
    shadow, state = served(tmp_path, task), tmp_path / "state"
    log(state, ["a", "b"], task=task)
    assert answer_new(state, shadow) == 2
    assert answer_new(state, shadow) == 0
    log(state, ["c"], task=task)
    log(state, ["d"], "2", task)
    assert answer_new(state, shadow) == 1, "its own answers are not compared with itself"
    ids, answered, said = shadows.said(state, "2")
    assert ids == ["a", "b", "c"]
    assert answered.shape == said.shape == ((3, 3) if task == "multiclass" else (3,))
    assert np.isfinite(said).all()


def test_killed_between_its_answers_and_its_note_it_doubles_nothing(tmp_path):
    shadow, state = served(tmp_path), tmp_path / "state"
    shadows.set_place(state, "2", 0, "")
    log(state, ["a", "b"])
    answer_new(state, shadow)
    shadows.set_place(state, "2", 0, "")
    answer_new(state, shadow)
    assert shadows.said(state, "2")[0] == ["a", "b"]


def test_what_the_log_does_not_hold_is_said_and_passed_over(tmp_path):
    shadow, state = served(tmp_path), tmp_path / "state"
    log(state, ["a"], **{"input.c": None})
    assert answer_new(state, shadow) == 0
    assert "does not hold the input 'c'" in shadows.note_of(state, "2")
    log(state, ["b"])
    assert answer_new(state, shadow) == 1
    assert shadows.note_of(state, "2") == ""


def test_an_input_that_was_given_and_not_used_before_is_taken_from_the_row(tmp_path):
    shadow, state = served(tmp_path), tmp_path / "state"
    log(state, ["a"], **{"input.c": None, "raw.c": pa.array(["v"])})
    assert answer_new(state, shadow) == 1


def test_before_anything_was_said_there_is_nothing(tmp_path):
    ids, answered, said = shadows.said(tmp_path, "2")
    assert (ids, len(answered), len(said)) == ([], 0, 0)
