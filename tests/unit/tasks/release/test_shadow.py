"""A shadow goes over what is in the log, once, and what it said lies beside what was answered."""

from datetime import UTC, datetime, timedelta

import numpy as np
import orjson
import pyarrow as pa
import pytest

from models.feedback.log_rows import prediction_rows
from models.inference.loaded_model import LoadedModel
from models.project_spec.window import Window
from models.serving.records import PredictionRecorder
from tasks.release.shadow import answer_new
from tasks.state import shadows
from tasks.state.delta.delta_log import FEWEST_PARTS
from tasks.state.predictions import prediction_log
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
    return LoadedModel("tiny", "2", tmp_path / "2")


def test_each_row_is_answered_once(tmp_path, task):
    shadow, state = served(tmp_path, task), tmp_path / "state"
    log(state, ["a", "b"], task=task)
    assert answer_new(state, shadow) == 2
    assert answer_new(state, shadow) == 0
    log(state, ["c"], task=task)
    log(state, ["d"], "2", task)
    assert answer_new(state, shadow) == 1, "its own answers are not compared with itself"
    ids, _, answered, said = shadows.answers(state, "2")
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
    assert shadows.answers(state, "2")[0] == ["a", "b"]


def test_its_log_holds_few_files_and_the_rows_that_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(shadows, "MOST_COMPARED", 8)
    shadow, state = served(tmp_path), tmp_path / "state"
    shadows.set_place(state, "2", 0, "")
    for number in range(24):
        log(state, [f"r{number:02d}"], at=pa.array([NOON + timedelta(seconds=number)]))
        assert answer_new(state, shadow) == 1
        found = shadows.shadow_log(state, "2").parts()
        assert len(found) < 2 * FEWEST_PARTS
        assert sum(part.rows for part in found) <= 2 * shadows.MOST_COMPARED
    assert shadows.answers(state, "2")[0] == [f"r{number:02d}" for number in range(16, 24)]


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


GIVEN = {
    "binary": [{"x": 1.0, "c": "u"}, {"x": None, "c": "w"}],
    "image": [{"picture": "AAAAAAAA"}, {"picture": "AAECAwQF"}],
    "series": [{"x": float(step), "y": -1.0} for step in range(4)],
    "language": [{"line": "ab"}, {"line": "cabbac"}],
}


def logged(state, answered, records, whole=True, redacted=()):
    """Answers as a server writes them down and the compactor moves them."""
    rows = answered.schema.from_records(records)
    ids = [str(number) for number in range(rows.num_rows)]
    record = PredictionRecorder(answered.preparation, redacted).record(
        ids, 1, rows, answered.answer(rows.feed), whole=whole
    )
    prediction_log(state).append(prediction_rows([orjson.loads(record)]))
    return rows


@pytest.mark.parametrize("kind", list(GIVEN))
def test_of_every_kind_the_shadow_says_what_it_would_have_said(tmp_path, kind):
    shadow, state = served(tmp_path, kind), tmp_path / "state"
    rows = logged(state, LoadedModel("tiny", "1", shadow.folder), GIVEN[kind])
    assert answer_new(state, shadow) == 2
    ids, _, answered, said = shadows.answers(state, "2")
    assert ids == ["0", "1"]
    outputs = shadow.answer(rows.feed).outputs
    wanted = {
        "binary": lambda: outputs["probabilities"][:, 1],
        "image": lambda: outputs["probabilities"][:, 1],
        "series": lambda: outputs["prediction"].ravel(),
        "language": lambda: outputs["bits_per_char"],
    }[kind]()
    assert said.tolist() == answered.tolist() == wanted.tolist()
    assert len(set(said.tolist())) == 2
    assert shadows.note_of(state, "2") == ""


@pytest.mark.parametrize(("kind", "column"), [("image", "picture"), ("series", "y"), ("language", "line")])
def test_what_was_redacted_is_not_there_for_a_shadow_either(tmp_path, kind, column):
    shadow, state = served(tmp_path, kind), tmp_path / "state"
    logged(state, LoadedModel("tiny", "1", shadow.folder), GIVEN[kind], redacted=[column])
    (table,) = prediction_log(state).scan()
    assert not {f"given.{column}", f"raw.{column}"} & set(table.column_names)
    assert answer_new(state, shadow) == 0
    assert f"does not hold the input '{column}'" in shadows.note_of(state, "2")


@pytest.mark.parametrize("kind", ["series", "language"])
def test_what_came_before_there_was_a_shadow_is_passed_over_and_said(tmp_path, kind):
    shadow, state = served(tmp_path, kind), tmp_path / "state"
    first = LoadedModel("tiny", "1", shadow.folder)
    logged(state, first, GIVEN[kind], whole=False)
    logged(state, first, GIVEN[kind])
    assert answer_new(state, shadow) == 2
    assert "2 rows" in shadows.note_of(state, "2")


def test_a_shadow_that_looks_further_back_than_was_given_says_so(tmp_path):
    shadow, state = served(tmp_path, "series"), tmp_path / "state"
    logged(state, LoadedModel("tiny", "1", shadow.folder), GIVEN["series"])
    longer = shadow.preparation.model_copy(update={"window": Window(length=5)})
    shadow.preparation = longer
    assert answer_new(state, shadow) == 0
    assert "the log holds windows of 3 steps: this version looks at 5" in shadows.note_of(state, "2")


def test_before_anything_was_said_there_is_nothing(tmp_path):
    ids, _, answered, said = shadows.answers(tmp_path, "2")
    assert (ids, len(answered), len(said)) == ([], 0, 0)
