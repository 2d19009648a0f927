"""Which labelled predictions there are: told from a note while nothing changed, and by what is said, not how often."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from models.sources.row_batches import concatenated
from tasks.state import feedback
from tasks.state.feedback import feedback_of, labelled_rows
from tasks.state.predictions import label_store, prediction_log
from tests.wide import examples


def at(count: int) -> pa.Array:
    return pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", tz="UTC"))


def predicted(state, ids, x=0.0, version="1") -> None:
    count = len(ids)
    columns = {"id": ids, "at": at(count), "version": [version] * count, "input.x": [x] * count}
    prediction_log(state).append(pa.table(columns))


def labelled(state, ids, labels) -> None:
    label_store(state).append(pa.table({"id": ids, "at": at(len(ids)), "label": labels, "by": ["Ada"] * len(ids)}))


def test_without_labels_there_is_none(tmp_path):
    predicted(tmp_path, ["a"])
    assert feedback_of(tmp_path).rows == 0
    assert not (tmp_path / feedback.FILE).exists()


def test_it_changes_by_labels_that_say_something_new_and_by_nothing_else(tmp_path):
    predicted(tmp_path, ["a", "b"])
    labelled(tmp_path, ["a"], ["x"])
    first = feedback_of(tmp_path)
    assert first.rows == 1
    labelled(tmp_path, ["b"], ["y"])
    second = feedback_of(tmp_path)
    assert second.rows == 2
    assert second.digest != first.digest
    predicted(tmp_path, ["c", "a"], x=9.0, version="2")
    prediction_log(tmp_path).compact()
    assert feedback_of(tmp_path).digest == second.digest
    labelled(tmp_path, ["b"], ["z"])
    third = feedback_of(tmp_path)
    assert third.rows == 2
    assert third.digest not in (first.digest, second.digest)
    labelled(tmp_path, ["b"], ["y"])
    assert feedback_of(tmp_path).digest == second.digest


def test_a_note_of_predictions_that_were_all_removed_is_not_believed(tmp_path):
    for one in ("a", "b", "c"):
        predicted(tmp_path, [one])
    labelled(tmp_path, ["a", "b", "d"], ["x", "y", "z"])
    assert feedback_of(tmp_path).rows == 2
    shutil.rmtree(tmp_path / "predictions")
    predicted(tmp_path, ["d"])
    found = feedback_of(tmp_path)
    assert (found.predictions, found.rows) == (1, 1)
    assert [table.column("id").to_pylist() for table in labelled_rows(tmp_path, found)] == [["d"]]


def test_an_early_label_counts_once_its_prediction_comes(tmp_path):
    predicted(tmp_path, ["a"])
    labelled(tmp_path, ["a", "late"], ["x", "y"])
    first = feedback_of(tmp_path)
    assert (first.rows, first.waiting) == (1, True)
    predicted(tmp_path, ["other"])
    assert feedback_of(tmp_path).digest == first.digest
    predicted(tmp_path, ["late"])
    second = feedback_of(tmp_path)
    assert (second.rows, second.waiting) == (2, False)


def test_while_nothing_changed_nothing_is_read(tmp_path, monkeypatch):
    predicted(tmp_path, ["a"])
    labelled(tmp_path, ["a"], ["x"])
    found = feedback_of(tmp_path)
    monkeypatch.setattr(feedback, "_counted", None)
    monkeypatch.setattr(feedback, "_with_later_labels", None)
    predicted(tmp_path, ["b"])
    assert feedback_of(tmp_path) == found
    (tmp_path / feedback.FILE).write_text("torn")
    monkeypatch.undo()
    assert feedback_of(tmp_path).digest == found.digest


def test_rows_are_those_of_the_first_prediction_with_who_said_what_when(tmp_path):
    predicted(tmp_path, ["a", "b"], x=1.0)
    labelled(tmp_path, ["a"], ["x"])
    found = feedback_of(tmp_path)
    predicted(tmp_path, ["a"], x=2.0, version="2")
    labelled(tmp_path, ["a"], ["after"])
    rows = concatenated(list(labelled_rows(tmp_path, found))).to_pylist()
    assert len(rows) == 1
    assert (rows[0]["id"], rows[0]["input.x"], rows[0]["version"]) == ("a", 1.0, "1")
    assert (rows[0]["label"], rows[0]["by"]) == ("x", "Ada")
    assert feedback_of(tmp_path).digest != found.digest


@examples(20)
@given(
    st.lists(st.tuples(st.sampled_from(["predict", "label", "ask"]), st.integers(0, 5), st.integers(0, 2)), max_size=25)
)
def test_what_is_told_step_by_step_is_what_counting_all_again_tells(tmp_path_factory, events):
    state = tmp_path_factory.mktemp("state")
    for kind, name, label in events:
        if kind == "predict":
            predicted(state, [str(name)])
        elif kind == "label":
            labelled(state, [str(name)], [f"label {label}"])
        else:
            feedback_of(state)
    found = feedback_of(state)
    (state / feedback.FILE).unlink(missing_ok=True)
    again = feedback_of(state)
    assert (found.rows, found.digest) == (again.rows, again.digest)
    assert found.waiting or not again.waiting


def test_while_nothing_came_delta_is_not_imported(tmp_path):
    predicted(tmp_path, ["a"])
    labelled(tmp_path, ["a"], ["x"])
    assert feedback_of(tmp_path).rows == 1
    again = "import pathlib, sys; from tasks.state.feedback import feedback_of; feedback_of(pathlib.Path(sys.argv[1]));"
    command = [sys.executable, "-c", f"{again} sys.exit('deltalake' in sys.modules)", str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == 0
