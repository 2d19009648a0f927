"""A record counts only while it is whole and its outputs are what it says."""

import itertools
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.files import Hashes, sha256
from models.pipeline.records import REMEMBERED, StepRecord, StepRecords, digest_of


@pytest.fixture
def records(tmp_path: Path) -> StepRecords:
    return StepRecords(tmp_path / "records", tmp_path)


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


@pytest.mark.parametrize("cut", [0, 1, 20, -2])
def test_a_torn_record_is_not_done(records: StepRecords, tmp_path: Path, cut: int) -> None:
    records.save(record())
    path = tmp_path / "records" / "train" / "k.json"
    path.write_text(path.read_text().strip()[:cut])
    assert records.find("train", "k") is None
    assert records.latest("train") is None


@pytest.mark.parametrize("content", [b"[]", b"{}", b"null", b"\xff\xfe"])
def test_a_file_that_is_no_record_is_not_done(records: StepRecords, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records" / "train" / "k.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert records.find("train", "k") is None


def test_the_latest_is_by_time_of_finishing(records: StepRecords) -> None:
    for key, finished in (("a", 2.0), ("b", 3.0), ("c", 1.0)):
        records.save(record(key=key, finished=finished))
    latest = records.latest("train")
    assert latest is not None
    assert latest.key == "b"
    assert set(records.all(["train", "search"])) == {"train"}


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 2e9), st.floats(-1, 30)), max_size=12))
def test_the_newest_come_first_however_late_their_files_were_written(times: list[tuple[float, float]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        records = StepRecords(Path(folder) / "records", Path(folder))
        (Path(folder) / "records" / "train").mkdir(parents=True)
        for number, (finished, later_s) in enumerate(times):
            path = Path(folder) / "records" / "train" / f"{number}.json"
            path.write_text(record(key=str(number), finished=finished).model_dump_json(indent=1))
            written = max(0.0, finished + later_s)
            os.utime(path, (written, written))
        found = [each.finished for each in records.newest("train")]
    assert found == sorted((finished for finished, _ in times), reverse=True)


def test_a_look_at_the_newest_leaves_the_old_ones_unread(
    records: StepRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, many = tmp_path / "records" / "train", REMEMBERED + 20
    folder.mkdir(parents=True)
    for number in range(many):
        made = record(key=str(number), finished=100.0 * number)
        (folder / f"{number}.json").write_text(made.model_dump_json(indent=1))
        os.utime(folder / f"{number}.json", (100.0 * number, 100.0 * number))
    read: list[str] = []
    read_bytes = Path.read_bytes

    def reading(path: Path) -> bytes:
        read.append(path.stem)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    found = [int(each.key) for each in itertools.islice(records.newest("train"), 3)]
    assert found == [many - 1, many - 2, many - 3]
    assert {"0", "10", "18"}.isdisjoint(read)


def test_the_newest_are_noted_until_the_folder_changes(
    records: StepRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "records" / "train"
    for number in range(3):
        records.save(record(key=str(number), finished=100.0 * number))
    os.utime(folder, (1000, 1000))
    assert [each.key for each in records.newest("train")] == ["2", "1", "0"]
    monkeypatch.setattr(os, "scandir", lambda _: pytest.fail("looked at every file again"))
    assert [each.key for each in records.newest("train")] == ["2", "1", "0"]
    monkeypatch.undo()
    records.save(record(key="0", finished=900.0))
    assert [each.key for each in records.newest("train")] == ["0", "2", "1"]
    (folder / "2.json").unlink()
    assert [each.key for each in records.newest("train")] == ["0", "1"]


@pytest.mark.parametrize("note", ["", "[]", '{"changed": 1}', '{"names": 3}', "null"])
def test_a_note_that_is_none_is_made_again(records: StepRecords, tmp_path: Path, note: str) -> None:
    records.save(record())
    (tmp_path / "records" / "train.newest").write_text(note)
    assert [each.key for each in records.newest("train")] == ["k"]


def test_more_than_are_noted_are_found_too(records: StepRecords) -> None:
    folder = records._folder / "train"
    folder.mkdir(parents=True)
    for number in range(REMEMBERED + 6):
        made = record(key=str(number), finished=float(number))
        (folder / f"{number}.json").write_text(made.model_dump_json(indent=1))
    for _ in range(2):
        assert [int(each.key) for each in records.newest("train")] == list(range(REMEMBERED + 5, -1, -1))


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


def test_the_digest_follows_names_and_hashes_not_places() -> None:
    assert digest_of({"a/model.onnx": "1"}) == digest_of({"b/c/model.onnx": "1"})
    assert digest_of({"a/model.onnx": "1"}) != digest_of({"a/model.onnx": "2"})
    assert digest_of({"a/model.onnx": "1"}) != digest_of({"a/other.onnx": "1"})
