"""Labels are taken in whole or not at all; early, late, again, corrected and of unknown ids."""

import time

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data.preparation import Preparation
from models.errors import DataError, StoreError, UsageError
from models.inputs.text.record import TextColumn
from models.ngrams.model import NGRAMS_FILE
from models.project_spec.reader import read_spec
from tasks.operations.label import accept, accept_file, forget
from tasks.operations.predict import predict
from tasks.state import add_labels
from tasks.state.feedback import feedback_of
from tasks.state.ingest_segments import move
from tasks.state.predictions import joined, label_store, new_labels
from tasks.state.segments import SegmentWriter, segments_folder
from tests.served_models import put_in_cache, write_served

NONE = {"taken": 0, "corrected": 0, "repeated": 0, "waiting": 0, "empty": 0}


@pytest.fixture
def project(make_project, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    made = make_project()
    put_in_cache(made, "tiny")
    (tmp_path / "new.csv").write_text("tag,x,c\na,1,u\nb,2,v\nc,3,w\n")
    predict(made, read_spec(made.spec_path), tmp_path / "new.csv", id_column="tag")
    return made


def take(project, ids, labels, **options):
    rows = pa.table({"id": ids, "label": pa.array(labels, pa.string())})
    return accept(project, read_spec(project.spec_path), rows, labeller="Ada", **options)


def known(project) -> dict[str, str]:
    tables = joined(project.state("tiny"), labelled=True)
    return {row["id"]: row["label"] for table in tables for row in table.select(["id", "label"]).to_pylist()}


def test_labels_early_late_repeated_corrected_and_empty_are_counted(project):
    assert take(project, ["a", "b", "later", "c"], ["yes", "no", "yes", None]) == {
        **NONE, "taken": 3, "waiting": 1, "empty": 1
    }  # fmt: skip
    assert known(project) == {"a": "yes", "b": "no"}
    assert take(project, ["a", "b"], ["yes", "yes"]) == {**NONE, "taken": 1, "corrected": 1, "repeated": 1}
    assert known(project) == {"a": "yes", "b": "yes"}
    assert take(project, ["a", "b"], ["yes", "yes"]) == {**NONE, "repeated": 2}
    assert label_store(project.state("tiny")).cursor() == 2
    assert new_labels(project.state("tiny"), 0) == 2, "the third waits for its prediction"


def test_a_correction_that_comes_meanwhile_is_not_replaced_by_the_older_label(project, monkeypatch):
    """A server writes it down, and a compactor would move it, while a file's labels are compared with what is known."""
    state, tried = project.state("tiny"), []
    look = add_labels._new

    def meanwhile(given, store):
        found = look(given, store)
        if not tried:
            tried.append(True)
            writer = SegmentWriter(segments_folder(state, "labels"))
            writer.write(orjson.dumps({"at": time.time_ns() // 1000, "ids": ["a"], "labels": ["no"], "by": "http"}))
            writer.close()
            with pytest.raises(StoreError, match="another process moves"):
                move(state, patience_s=0.0)
        return found

    monkeypatch.setattr(add_labels, "_new", meanwhile)
    take(project, ["a"], ["yes"])
    move(state)
    assert known(project) == {"a": "no"}


def test_one_wrong_label_and_none_is_taken(project):
    with pytest.raises(DataError, match=r"row 2: got label 'yep' of 'y', expected one of no, yes: did you mean 'yes'"):
        take(project, ["a", "b"], ["yes", "yep"])
    assert label_store(project.state("tiny")).cursor() == 0


def test_files_of_labels(project, tmp_path):
    spec = read_spec(project.spec_path)
    (tmp_path / "labels.csv").write_text("tag,y\na,yes\nb,no\n")
    pq.write_table(pa.table({"tag": ["b", "c"], "y": ["no", "yes"]}), tmp_path / "labels.parquet")
    assert accept_file(project, spec, tmp_path / "labels.csv", labeller="Ada", id_column="tag") == {**NONE, "taken": 2}
    found = accept_file(project, spec, tmp_path / "labels.parquet", labeller="Ada", id_column="tag")
    assert found == {**NONE, "taken": 1, "repeated": 1}
    (table,) = label_store(project.state("tiny")).scan(since=1)
    assert table.select(["id", "label", "by"]).to_pylist() == [{"id": "c", "label": "yes", "by": "Ada"}]
    (tmp_path / "empty.csv").write_text("id,label\n")
    assert accept_file(project, spec, tmp_path / "empty.csv", labeller="Ada") == NONE
    with pytest.raises(DataError, match=r"labels\.csv.*no column 'id'"):
        accept_file(project, spec, tmp_path / "labels.csv", labeller="Ada")


def test_the_newest_version_in_the_cache_says_what_a_label_may_be(make_project):
    project = make_project()
    for number, task in (("9", "binary"), ("10", "multiclass")):
        write_served(project.workspace.cache / "models" / "tiny" / number, task)
    assert take(project, ["a"], ["perhaps"]) == {**NONE, "taken": 1, "waiting": 1}


def test_labels_need_no_vocabulary_of_texts(project):
    write_served(project.prepared)
    text = TextColumn(name="note", num_terms=9, num_features=3)
    Preparation.load(project.prepared).with_inputs("text", [text]).save(project.prepared)
    (project.prepared / NGRAMS_FILE).write_text("of another version of Loopline")
    assert take(project, ["a"], ["yes"])["taken"] == 1


def test_a_number_may_have_a_decimal_comma_where_the_target_has(make_project, tmp_path):
    project = make_project()
    write_served(project.prepared, "regression")
    Preparation.load(project.prepared).model_copy(update={"decimal_commas": ["y"]}).save(project.prepared)
    (tmp_path / "labels.csv").write_text("id;y\na;1.234,5\nb;\n")
    spec = read_spec(project.spec_path)
    assert accept_file(project, spec, tmp_path / "labels.csv", labeller="Ada")["taken"] == 1
    (table,) = label_store(project.state("tiny")).scan(since=0)
    assert table.column("label").to_pylist() == ["1234.5"]
    with pytest.raises(DataError, match=r"labels, row 1, column 'label': got '1.5', expected a number with a decimal"):
        take(project, ["a"], ["1.5"])


def test_a_project_that_was_never_prepared_cannot_say_what_a_label_may_be(make_project):
    project = make_project()
    with pytest.raises(UsageError, match="nothing was prepared yet"):
        take(project, ["a"], ["yes"])
    write_served(project.prepared)
    assert take(project, ["a"], ["yes"]) == {**NONE, "taken": 1, "waiting": 1}


def test_a_label_can_be_withdrawn_and_given_again(project):
    spec, state = read_spec(project.spec_path), project.state("tiny")
    take(project, ["a", "b"], ["yes", "no"])
    before = feedback_of(state)
    assert before.rows == 2
    assert forget(project, spec, ["a", "a"], labeller="Ada") == 1
    assert known(project) == {"b": "no"}
    after = feedback_of(state)
    assert (after.rows, after.digest == before.digest) == (1, False)
    (state / "feedback.json").unlink()
    assert feedback_of(state) == after  # counted anew too: the withdrawn label does not wait for a prediction
    assert new_labels(state, 0) == 1
    with pytest.raises(UsageError, match="'a' has no label: nothing was forgotten"):
        forget(project, spec, ["b", "a"], labeller="Ada")
    assert known(project) == {"b": "no"}
    take(project, ["a"], ["yes"])
    again = feedback_of(state)
    assert (again.rows, again.digest) == (before.rows, before.digest)


def test_the_command_takes_a_file_or_ids_to_forget(project):
    from click.testing import CliRunner

    from flows.cli import loopline

    take(project, ["a"], ["yes"])
    told = CliRunner().invoke(loopline, ["label", str(project.folder), "--forget", "a"])
    assert (told.exit_code, told.output) == (0, "tiny: labels forgotten: 1; what was trained with them stays\n")
    assert known(project) == {}
    for wrong in ((), ("labels.csv", "--forget", "a")):
        refused = CliRunner().invoke(loopline, ["label", str(project.folder), *wrong])
        assert (refused.exit_code, "give a FILE of labels, or --forget ID" in refused.output) == (2, True)
