"""Ingest: a source becomes one raw table, once; what is wrong with it is told before anything is written."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import DataError, UserCodeError
from models.pipeline.records import StepRecord
from models.project_spec.reader import read_spec
from tasks.host.workspace import Project
from tasks.loop.lifecycle import open_stage
from tasks.loop.loop import SilentReporter
from tasks.loop.step_cache import StepCache
from tasks.mlflow import registry_reader
from tasks.state.predictions import label_store, prediction_log
from tasks.state.step_records import StepRecords
from tasks.steps.ingest import ingest
from tasks.tools import expectations
from tests.conftest import MakeProject


def ingested(project: Project, refresh: bool = False) -> tuple[StepRecord, bool]:
    with open_stage(project) as loop:
        loop.refresh = frozenset({"ingest"}) if refresh else frozenset()
        return ingest(loop)


def test_a_file_becomes_one_parquet_table_once(make_project: MakeProject) -> None:
    project = make_project()
    record, was_done = ingested(project)
    assert not was_done
    assert record.result["rows"] == 200
    assert [column["name"] for column in record.result["schema"]] == ["x", "c", "y"]
    assert pq.read_table(project.raw).num_rows == 200
    again, was_done = ingested(project)
    assert was_done
    assert again == record


def test_the_same_bytes_for_the_same_source(make_project: MakeProject) -> None:
    project = make_project()
    first, _ = ingested(project)
    before = project.raw.read_bytes()
    second, was_done = ingested(project, refresh=True)
    assert not was_done
    assert project.raw.read_bytes() == before
    assert second.digest == first.digest


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "empty"),
        ("x,c,y\n", "no rows"),
        ("x,c\n" + "1,u\n" * 20, "'y'"),
        ("x,x,y\n" + "1,2,a\n" * 20, "x"),
    ],
)
def test_a_table_that_cannot_be_used_writes_nothing(make_project: MakeProject, rows: str, words: str) -> None:
    project = make_project(rows=rows)
    with pytest.raises(DataError, match=words):
        ingested(project)
    assert not project.raw.exists()
    assert StepRecords(project.state("tiny"), project.workspace.root).latest("ingest") is None


def test_a_column_that_changed_its_type_names_both_and_keeps_the_old_table(make_project: MakeProject) -> None:
    project = make_project()
    first, _ = ingested(project)
    before = project.raw.read_bytes()
    make_project(rows="x,c,y\n" + "high,u,yes\nlow,v,no\n" * 20)
    with pytest.raises(DataError, match=f"x.*compared with the data of loop {first.loop_id}"):
        ingested(project)
    assert project.raw.read_bytes() == before


@pytest.mark.parametrize(("split", "told"), [("", 1), ("  split: {by: hash, column: x}\n", 0)])
def test_columns_that_come_or_go_divide_rows_anew_and_that_is_told(
    make_project: MakeProject, split: str, told: int
) -> None:
    notes: list[str] = []
    project = make_project()
    project.spec_path.write_text(project.spec_path.read_text() + split)
    reporter = SilentReporter()
    reporter.note = notes.append  # type: ignore[method-assign]
    for header, more in (("x,c,y", ""), ("x,c,y", ""), ("x,c,y,z", ",1")):
        rows = "".join(f"{i / 7},{'uvw'[i % 3]},{'yes' if i % 4 else 'no'}{more}\n" for i in range(200))
        (project.folder / "data.csv").write_text(f"{header}\n{rows}")
        with open_stage(project, reporter) as loop:
            ingest(loop)
    assert len(notes) == told
    assert all("columns came or went (z)" in note for note in notes)


def test_ids_that_become_text_divide_rows_anew_and_that_is_told(make_project: MakeProject) -> None:
    notes: list[str] = []
    project = make_project()
    project.spec_path.write_text(project.spec_path.read_text() + "  id: key\n")
    reporter = SilentReporter()
    reporter.note = notes.append  # type: ignore[method-assign]
    for form in ("{}", "{}", "{:03}", "{:03}"):
        rows = "".join(f"{form.format(i)},{i / 7},{'yes' if i % 4 else 'no'}\n" for i in range(200))
        (project.folder / "data.csv").write_text(f"key,x,y\n{rows}")
        with open_stage(project, reporter) as loop:
            ingest(loop)
    (note,) = notes
    assert "the ids of 'key' are text now" in note
    assert pq.read_table(project.raw).column("key").to_pylist()[7] == "007"


def test_a_users_own_source(make_project: MakeProject) -> None:
    project = make_project()
    (project.folder / "source.py").write_text(
        "import pandas as pd\n\n\ndef load():\n    return pd.DataFrame({'x': [1.0, 2.0] * 10, 'y': ['a', 'b'] * 10})\n"
    )
    project.spec_path.write_text("name: tiny\ndata:\n  source: ./source.py:load\n  target: y\n")
    assert ingested(project)[0].result["rows"] == 20
    (project.folder / "source.py").write_text("def load():\n    raise RuntimeError('no tape')\n")
    with pytest.raises(UserCodeError, match="no tape"):
        ingested(project)


def _labelled(project: Project, ids: list[str], x: list[float], labels: list[str]) -> None:
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * len(ids), pa.timestamp("us", tz="UTC"))
    state = project.state("tiny")
    rows = {"id": ids, "at": at, "version": ["1"] * len(ids), "input.x": x, "input.c": ["u"] * len(ids)}
    prediction_log(state).append(pa.table(rows))
    label_store(state).append(pa.table({"id": ids, "at": at, "label": labels, "by": ["Ada"] * len(ids)}))


def test_labelled_predictions_become_rows_once_and_are_told_apart_beside_the_table(make_project: MakeProject) -> None:
    project = make_project()
    before, _ = ingested(project)
    _labelled(project, ["a", "b"], [0.0, 500.0], ["no", "yes"])  # the first holds what the source's own first row holds
    record, was_done = ingested(project)
    assert not was_done
    assert record.result["feedback"] == {"joined": 2, "known": 0, "unfit": 0, "rejected": 0, "other": 0}
    assert record.result["rows"] == 202
    assert record.digest != before.digest
    assert pq.read_table(project.raw).slice(201).to_pylist() == [{"x": 500.0, "c": "u", "y": "yes"}]
    _, origin = pq.read_table(project.raw.with_name("feedback.parquet")).to_pylist()
    assert (origin["row"], origin["id"], origin["labelled_by"]) == (201, "b", "Ada")
    assert ingested(project)[1]
    spec = read_spec(project.spec_path)
    assert StepCache(project, spec).plan()[0].state == "done"
    _labelled(project, ["c"], [600.0], ["no"])
    assert "labelled predictions: 2 (" in StepCache(project, spec).plan()[0].reasons[0]


def test_what_is_set_aside_changes_no_columns_type_and_what_cannot_be_checked_is_told(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = "  expectations:\n    - {expect: column_values_to_be_between, arguments: {column: x, max_value: 1000}}\n"
    rows = "x,c,y\n" + "".join(f"{i},{'uvw'[i % 3]},{'yes' if i % 4 else 'no'}\n" for i in range(200))
    project = make_project(spec=expected, rows=rows)
    _labelled(project, ["a", "b"], [4500.5, 500.0], ["no", "yes"])
    ingested(project)
    assert pq.read_schema(project.raw).field("x").type == pa.int64()
    assert pq.read_table(project.raw).column("x").to_pylist()[200:] == [500]
    notes: list[str] = []
    reporter = SilentReporter()
    reporter.note = notes.append  # type: ignore[method-assign]
    broken = {"error": "no such thing", "expectation": "column_values_to_be_between"}
    monkeypatch.setattr(
        expectations, "run_checks", lambda *_, **__: expectations.ValidationOutcome({"results": [broken]})
    )
    with open_stage(project, reporter) as loop:
        loop.refresh = frozenset({"ingest"})
        record, _ = ingest(loop)
    assert record.result["feedback"]["rejected"] == 0
    assert any("could not be checked by column_values_to_be_between (no such thing)" in note for note in notes)


def test_a_labelled_prediction_that_breaks_an_expectation_is_set_aside_and_counted(make_project: MakeProject) -> None:
    expected = "  expectations:\n    - {expect: column_values_to_be_between, arguments: {column: x, max_value: 1000}}\n"
    project = make_project(spec=expected)
    _labelled(project, ["a", "b"], [4.5e6, 500.0], ["no", "yes"])
    record, _ = ingested(project)
    assert (record.result["feedback"]["joined"], record.result["feedback"]["rejected"]) == (1, 1)
    assert pq.read_table(project.raw).column("x").to_pylist()[200:] == [500.0]
    (path,) = project.state("tiny").glob("quarantine/*/feedback/failing_rows.parquet")
    (row,) = pq.read_table(path).to_pylist()
    assert (row["id"], row["x"]) == ("a", 4.5e6)
    spec = read_spec(project.spec_path, ("data.expectations=[]",))
    assert "labelled predictions" in StepCache(project, spec).plan()[0].reasons[0]


def test_a_labelled_prediction_that_a_query_names_is_set_aside_with_the_sources_rows_in_view(
    make_project: MakeProject,
) -> None:
    query = "SELECT * FROM {batch} QUALIFY count(*) OVER (PARTITION BY x) > 1"
    arguments = f'{{unexpected_rows_query: "{query}"}}'
    expected = f"  expectations:\n    - {{expect: unexpected_rows_expectation, arguments: {arguments}}}\n"
    rows = "x,c,y\n" + "".join(f"{i},{'uvw'[i % 3]},{'yes' if i % 4 else 'no'}\n" for i in range(200))
    project = make_project(spec=expected, rows=rows)
    _labelled(project, ["a", "b"], [7.0, 500.0], ["no", "yes"])
    record, _ = ingested(project)
    assert (record.result["feedback"]["joined"], record.result["feedback"]["rejected"]) == (1, 1)
    assert pq.read_table(project.raw).column("x").to_pylist()[200:] == [500]
    (path,) = project.state("tiny").glob("quarantine/*/feedback/failing_rows.parquet")
    assert [row["id"] for row in pq.read_table(path).to_pylist()] == ["a"]


def test_a_teams_own_class_checks_labelled_predictions_and_its_file_is_in_the_key(make_project: MakeProject) -> None:
    own = """
import great_expectations.expectations as gxe


class ExpectSmall(gxe.ExpectColumnValuesToBeBetween):
    column: str = "x"
    max_value: float = 1000.0


class ExpectMean(gxe.ExpectColumnMeanToBeBetween):
    column: str = "x"
    max_value: float = 0.0
"""
    classes = "[{expect: './checks.py:ExpectSmall'}, {expect: './checks.py:ExpectMean'}]"
    project = make_project(spec=f"  expectations: {classes}\n")
    spec = read_spec(project.spec_path)
    ingested(project)
    (project.folder / "checks.py").write_text(own)
    assert StepCache(project, spec).plan()[0].state == "done", "without labelled predictions no class runs here"
    _labelled(project, ["a", "b"], [4.5e6, 500.0], ["no", "yes"])
    record, _ = ingested(project)
    assert (record.result["feedback"]["joined"], record.result["feedback"]["rejected"]) == (1, 1)
    assert pq.read_table(project.raw).column("x").to_pylist()[200:] == [500.0]
    (project.folder / "checks.py").write_text(own.replace("1000.0", "1e9"))
    assert "checks.py" in StepCache(project, spec).plan()[0].reasons[0]
    record, _ = ingested(project)
    assert record.result["feedback"]["joined"] == 2


def test_labels_of_another_target_are_no_rows_and_another_target_is_another_table(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project()
    _labelled(project, ["a", "b"], [500.0, 600.0], ["v", "v"])
    project.spec_path.write_text(project.spec_path.read_text().replace("target: y", "target: c"))
    of_y = registry_reader.RegisteredVersion(number="1", tags={"loopline.target": "y"})
    for known, joined in ((None, 2), (of_y, 0)):
        monkeypatch.setattr(registry_reader, "named", lambda *_, known=known: known)
        record, _ = ingested(project, refresh=True)
        assert (record.result["feedback"]["joined"], record.result["feedback"]["other"]) == (joined, 2 - joined)
        assert record.result["rows"] == 200 + joined
    project.spec_path.write_text(project.spec_path.read_text().replace("target: c", "target: y"))
    assert " for y by random" in StepCache(project, read_spec(project.spec_path)).plan()[0].reasons[0]


def test_feedback_may_be_declined(make_project: MakeProject) -> None:
    project = make_project()
    before, _ = ingested(project)
    _labelled(project, ["b"], [500.0], ["yes"])
    ingested(project)
    project.spec_path.write_text(project.spec_path.read_text() + "retrain: {feedback: false}\n")
    record, _ = ingested(project, refresh=True)
    assert record.digest == before.digest
    assert not project.raw.with_name("feedback.parquet").exists()
