"""A record counts only while it is whole and its outputs are what it says."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.files import Hashes, sha256
from models.pipeline.records import StepRecord
from tasks.host import database
from tasks.host.tables import step_records
from tasks.state.step_records import PAGE, StepRecords, latest_records, newest_records


@pytest.fixture
def records(tmp_path: Path) -> StepRecords:
    return StepRecords(tmp_path / ".loopline" / "projects" / "tiny", tmp_path)


def record(step: str = "train", key: str = "k", finished: float = 1.0, **outputs: str) -> StepRecord:
    return StepRecord(
        step=step, key=key, parts={"spec:train.lr": 0.1}, outputs=outputs, digest="d", loop_id="loop", finished=finished
    )


def test_what_is_saved_is_found_under_its_key_alone(records: StepRecords) -> None:
    saved = record()
    records.save(saved)
    assert records.find("train", "k") == saved
    assert records.find("train", "other") is None
    assert records.find("search", "k") is None


def test_missing_and_changed_outputs_are_named(records: StepRecords, tmp_path: Path) -> None:
    output = tmp_path / "weights"
    output.write_text("good")
    made = record(weights=sha256(output))
    hashes = Hashes(tmp_path / "hashes")
    assert records.broken(made, hashes) is None
    output.write_text("evil")
    assert records.broken(made, hashes) == "output changed: weights"
    output.unlink()
    assert records.broken(made, hashes) == "output missing: weights"


def test_a_folder_may_be_an_output(records: StepRecords, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "a").write_text("1")
    made = record(checkpoint=sha256(folder))
    assert records.broken(made, Hashes(tmp_path / "h")) is None
    (folder / "b").write_text("2")
    assert records.broken(made, Hashes(tmp_path / "h")) == "output changed: checkpoint"


def test_names_are_relative_inside_the_workspace_and_absolute_outside(records: StepRecords, tmp_path: Path) -> None:
    inside, outside = tmp_path / "a" / "b", tmp_path.parent / "elsewhere"
    assert records.name(inside) == "a/b"
    assert records.path(records.name(inside)) == inside
    assert records.path(records.name(outside)) == outside


def test_the_newest_is_the_one_saved_last_whatever_the_clock_said(records: StepRecords) -> None:
    for key, finished in (("a", 2.0), ("b", 3.0), ("c", 1.0), ("a", 0.5)):
        records.save(record(key=key, finished=finished))
    assert [each.key for each in records.newest("train")] == ["a", "c", "b"]
    latest = records.latest("train")
    assert latest is not None
    assert (latest.key, latest.finished) == ("a", 0.5)
    assert records.latest("search") is None


def test_records_are_read_in_pages(records: StepRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    many = PAGE + 6
    for number in range(many):
        records.save(record(key=str(number)))
    assert [int(each.key) for each in records.newest("train")] == list(range(many - 1, -1, -1))
    read: list[str] = []
    validate = StepRecord.model_validate_json
    monkeypatch.setattr(
        StepRecord, "model_validate_json", lambda row: read.append(json.loads(row)["key"]) or validate(row)
    )
    records.save(record(key="new"))
    assert next(records.newest("train")).key == "new"
    assert next(records.newest("train")).key == "new"
    assert read == ["new"], "of the page one is read, and parsed once"


def test_the_last_records_of_several_projects_are_read_at_once(records: StepRecords, tmp_path: Path) -> None:
    root = tmp_path / ".loopline"
    other = StepRecords(root / "projects" / "other", tmp_path)
    for key in ("a", "b", "c"):
        records.save(record(key=key))
    other.save(record(key="d"))
    with database.writing(root) as connection:
        damaged = step_records.c.key == "c"
        connection.execute(step_records.update().where(damaged).values(content={"step": "train"}))
    latest = latest_records(root, ["tiny", "other", "none"], ["train", "search"])
    assert {project: {step: one.key for step, one in steps.items()} for project, steps in latest.items()} == {
        "tiny": {"train": "b"},
        "other": {"train": "d"},
        "none": {},
    }
    newest = newest_records(root, ["tiny", "other"], "train", 2)
    assert {project: [one.key for one in made] for project, made in newest.items()} == {"tiny": ["b"], "other": ["d"]}
    seen = StepRecords(root / "projects" / "tiny", tmp_path, latest["tiny"])
    assert [one.key for one in seen.newest("train")] == ["b", "a"]
    assert [seen.find("train", "a"), seen.find("train", "b")] == [*seen.newest("train")][::-1]
    assert seen.latest("search") is None
    assert seen.find("search", "k") is None
    assert seen.of_parts("train", record().parts) == latest["tiny"]["train"]
    assert seen.of_parts("train", {"spec:train.lr": 0.2}) is None


def test_a_record_of_another_form_is_not_done(records: StepRecords, tmp_path: Path) -> None:
    records.save(record())
    with database.writing(tmp_path / ".loopline") as connection:
        connection.execute(step_records.update().values(content={"step": "train"}))
    assert records.find("train", "k") is None
    assert records.latest("train") is None


def test_records_of_two_projects_are_apart(records: StepRecords, tmp_path: Path) -> None:
    records.save(record())
    assert StepRecords(tmp_path / ".loopline" / "projects" / "other", tmp_path).find("train", "k") is None


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(max_size=8),
        st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.none()),
        max_size=4,
    )
)
def test_a_result_comes_back_as_it_was(records: StepRecords, result: dict[str, object]) -> None:
    saved = record().model_copy(update={"result": result})
    records.save(saved)
    assert records.find("train", "k") == saved
