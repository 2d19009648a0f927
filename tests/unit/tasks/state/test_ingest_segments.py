"""What servers wrote comes into the logs once: of living and dead writers, torn, damaged, killed between any steps."""

import platform
from pathlib import Path
from unittest import mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import StoreError
from models.feedback.log_rows import label_rows
from models.serving.framing import framed
from models.serving.records import label_record
from tasks.state import ingest_segments
from tasks.state.add_labels import add_labels
from tasks.state.delta.delta_log import FEWEST_PARTS
from tasks.state.delta.shared_log import SharedLog
from tasks.state.ingest_segments import move, moving, receive, share_labels
from tasks.state.predictions import joined, label_store, prediction_log
from tasks.state.segments import Segment, SegmentWriter, segments, segments_folder
from tests.killing import killed_at, move_and_merge
from tests.wide import examples, wide


def predicted(*ids: str, at: int = 1) -> bytes:
    record = {"ids": ids, "at": at, "version": "1", "score": [0.5] * len(ids)}
    return orjson.dumps({**record, "names": ["x"], "numbers": [1.0] * len(ids), "texts": {}, "raw": {}})


def logged(state: Path) -> list[str]:
    return [one for table in prediction_log(state).scan(columns=["id"]) for one in table.column("id").to_pylist()]


def labelled(state: Path) -> list[tuple[str, str]]:
    rows = (row for table in label_store(state).scan() for row in table.to_pylist())
    return [(row["id"], row["label"]) for row in rows]


def left(state: Path) -> list[str]:
    return sorted(path.suffix for path in (state / "serving").rglob("*") if path.is_file() and path.suffix != ".lock")


def test_nothing_costs_nothing(tmp_path):
    assert move(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_living_writers_records_come_once_however_often(tmp_path):
    writer = SegmentWriter(segments_folder(tmp_path))
    writer.write(predicted("a", "b"))
    assert [move(tmp_path), move(tmp_path)] == [2, 0]
    writer.write(predicted("c"))
    assert move(tmp_path) == 1
    assert (logged(tmp_path), left(tmp_path)) == (["a", "b", "c"], [".moved", ".seg"])
    for note in segments_folder(tmp_path).glob("*.moved"):
        note.unlink()
    assert move(tmp_path) == 0, "the log itself knows how far it was moved"
    writer.close()
    assert move(tmp_path) == 0
    assert (logged(tmp_path), left(tmp_path)) == (["a", "b", "c"], [])


def test_merged_parts_know_how_far_living_segments_were_moved(tmp_path):
    writer = SegmentWriter(segments_folder(tmp_path))
    for number in range(FEWEST_PARTS):
        writer.write(predicted(str(number)))
        move(tmp_path)
    for note in segments_folder(tmp_path).glob("*.moved"):
        note.unlink()
    log = prediction_log(tmp_path)
    assert log.compact() == FEWEST_PARTS
    assert move(tmp_path) == 0
    writer.close()
    assert move(tmp_path) == 0
    assert (len(logged(tmp_path)), left(tmp_path)) == (FEWEST_PARTS, [])


@examples(30)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    cut=st.integers(0, 400),
    looks=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_a_torn_end_is_passed_over_wherever_it_is_torn(tmp_path_factory, sizes, cut, looks):
    """A dead writer's file, cut anywhere, looked at while it grew or not: the whole records and no more."""
    state = tmp_path_factory.mktemp("torn")
    folder, at = segments_folder(state), 0
    folder.mkdir(parents=True)
    whole: list[str] = []
    place, content = folder / "1.seg", b""
    for number, size in enumerate(sizes):
        ids = [f"{number}-{row}" for row in range(size)]
        content += framed(predicted(*ids))
        if at + len(content[at:]) <= cut:
            whole += ids
        at = len(content)
        place.write_bytes(content[:cut])
        if looks[number]:
            move(state)
            if not place.exists():  # it was taken for left, as its writer held no lock
                place.write_bytes(content[:cut])
    move(state)
    assert sorted(set(logged(state))) == sorted(whole)


def test_a_damaged_one_is_kept_and_what_came_before_is_moved(tmp_path, caplog):
    folder = segments_folder(tmp_path)
    folder.mkdir(parents=True)
    content = bytearray(framed(predicted("a")) + framed(predicted("b")) + framed(predicted("c")))
    content[len(framed(predicted("a"))) + 20] ^= 1
    (folder / "1.seg").write_bytes(content)
    assert move(tmp_path) == 1
    assert (logged(tmp_path), left(tmp_path)) == (["a"], [".damaged"])
    assert "damaged from byte" in caplog.text
    assert move(tmp_path) == 0


def test_a_record_that_is_no_prediction_holds_up_no_other(tmp_path, caplog):
    writer = SegmentWriter(segments_folder(tmp_path))
    odd = orjson.loads(predicted("b")) | {"numbers": ["what"]}
    for record in (predicted("a"), orjson.dumps(odd), predicted("c")):
        writer.write(record)
    assert [move(tmp_path), move(tmp_path)] == [2, 0]
    assert logged(tmp_path) == ["a", "c"]
    assert orjson.loads((tmp_path / "serving" / "odd.jsonl").read_bytes())["record"] == odd
    assert "left out of the log" in caplog.text
    writer.close()


@pytest.mark.parametrize("kind", ["predictions", "labels"])
def test_a_record_that_is_not_valid_does_not_block_the_next_pass(tmp_path, kind):
    writer = SegmentWriter(segments_folder(tmp_path, kind))
    writer.write(orjson.dumps({"what": 1}))
    writer.close()
    assert move(tmp_path) == 0
    assert orjson.loads((tmp_path / "serving" / "odd.jsonl").read_bytes())["record"] == {"what": 1}
    assert move(tmp_path) == 0
    assert left(tmp_path) == [".jsonl"]


@pytest.fixture
def shared(tmp_path, monkeypatch) -> SharedLog:
    """The log of all hosts, in a folder that a test may replace."""
    log = SharedLog((tmp_path / "served").as_uri())
    monkeypatch.setattr(ingest_segments, "shared_log", lambda _: log)
    return log


def test_a_host_that_was_killed_and_comes_back_with_another_name_doubles_nothing(tmp_path, monkeypatch, shared):
    state = tmp_path / "host"
    SegmentWriter(segments_folder(state)).write(predicted("a"))
    killed = mock.patch.object(Segment, "note_moved", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        move(state)
    monkeypatch.setattr(platform, "node", lambda: "another")
    move(state)
    assert [record for span in shared.records(0) for record in span.by_kind["predictions"]] == [(1, mock.ANY)]


@pytest.mark.parametrize("is_noted", [True, False])
def test_another_table_is_received_from_its_start(tmp_path, monkeypatch, shared, is_noted):
    state = tmp_path / "host"
    for name in "abc":
        shared.add("predictions", [predicted(name).decode()], {name: 1})
    assert receive(state) == 3
    if not is_noted:
        (state / "serving" / ingest_segments.RECEIVED).unlink()
    monkeypatch.setattr(shared, "address", str(tmp_path / "new"))
    for name in "defg":
        shared.add("predictions", [predicted(name).decode()], {name: 1})
    assert [receive(state), receive(state)] == [4, 0]
    assert logged(state) == [*"abcdefg"]


def test_labels_that_were_shared_before_are_not_shared_again(tmp_path, shared):
    state, numbers = tmp_path / "host", []
    for label, at in (("yes", 1), ("yes", 2), (None, 3), (None, 4)):
        labels = label_rows([{"ids": ["a", "b"], "labels": [label] * 2, "at": at, "by": "Ada"}])
        with moving(state):
            share_labels(state, labels)
            add_labels(state, labels)
        numbers.append(shared.cursor())
    assert numbers == [1, 1, 2, 2]
    receive(tmp_path / "other")
    for one in (state, tmp_path / "other"):
        (one / "serving" / ingest_segments.RECEIVED).unlink(missing_ok=True)
        assert receive(one) == 0
        assert labelled(one) == [("a", "yes"), ("b", "yes"), ("a", None), ("b", None)]


def test_many_segments_are_moved_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_segments, "PIECE_BYTES", 200)
    writers = [SegmentWriter(segments_folder(tmp_path)) for _ in range(2)]
    for number in range(20):
        writers[number % 2].write(predicted(str(number)))
    writers[0].close()
    assert move(tmp_path) == 20
    assert sorted(map(int, logged(tmp_path))) == list(range(20))
    assert prediction_log(tmp_path).cursor() > 4
    assert len(segments(segments_folder(tmp_path))) == 1
    writers[1].close()


def test_labels_early_late_again_and_corrected(tmp_path):
    writer = SegmentWriter(segments_folder(tmp_path, "labels"))
    writer.write(label_record([("later", "yes"), ("a", "no")], 10, "Ada"))
    writer.write(label_record([("a", "yes")], 20, "Ada"))
    writer.write(label_record([("a", "yes")], 30, "Ada"))
    assert move(tmp_path) == 3
    predictions = SegmentWriter(segments_folder(tmp_path))
    predictions.write(predicted("a", "later"))
    assert move(tmp_path) == 2
    found = {row["id"]: row["label"] for table in joined(tmp_path, labelled=True) for row in table.to_pylist()}
    assert found == {"a": "yes", "later": "yes"}
    for note in segments_folder(tmp_path, "labels").glob("*.moved"):
        note.unlink()
    writer.close()
    move(tmp_path)
    assert labelled(tmp_path) == [("later", "yes"), ("a", "no"), ("a", "yes")], "moved again, nothing is new"
    predictions.close()


def test_another_process_at_it_is_waited_for_and_told(tmp_path):
    writer = SegmentWriter(segments_folder(tmp_path))
    writer.write(predicted("a"))
    with moving(tmp_path), pytest.raises(StoreError, match="another process moves"):
        move(tmp_path, patience_s=0.1)
    assert move(tmp_path) == 1
    writer.close()


@pytest.mark.parametrize("stride", [3, wide(1)])
def test_kill_9_at_every_step_of_moving_and_merging_loses_nothing_and_doubles_nothing(tmp_path, stride):
    """Every opening, renaming and removing of a file is a place to die at; then somebody goes on."""
    step, number, expected = 1 - stride, 0, []
    labels = []
    came_through = False
    while not came_through:
        step += stride
        dead, living = (SegmentWriter(segments_folder(tmp_path)) for _ in range(2))
        told = SegmentWriter(segments_folder(tmp_path, "labels"))
        for writer in (dead, living, dead):
            writer.write(predicted(str(number), at=number))
            expected.append(number)
            told.write(label_record([(str(number), "yes")], number, "Ada"))
            labels.append((str(number), "yes"))
            number += 1
        dead.close()
        told.close()
        came_through = not killed_at(step, move_and_merge, tmp_path)
        living.close()
        if step % 5 == 0:
            move(tmp_path)
    move(tmp_path)
    assert step > 20
    assert sorted(map(int, logged(tmp_path))) == expected
    assert sorted(labelled(tmp_path)) == sorted(labels)
    assert left(tmp_path) == []


def test_an_append_that_came_before_a_kill_does_not_come_again_with_the_next(tmp_path, shared):
    state = tmp_path / "host"
    shared.add("predictions", [predicted("a").decode()], {"one": 1})
    shared.add("predictions", [predicted("b").decode()], {"two": 1})
    assert receive(state) == 2
    (state / "serving" / ingest_segments.RECEIVED).unlink()  # killed between the commit and its note
    shared.add("predictions", [predicted("c").decode()], {"three": 1})
    assert receive(state) == 1
    assert logged(state) == ["a", "b", "c"]
