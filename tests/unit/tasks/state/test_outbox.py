"""The outbox loses nothing that was written and survives a writer killed in the middle of a line."""

import json
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import StoreError
from tasks.state import outbox
from tasks.state.journal import read
from tasks.state.outbox import Outbox


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox" / "loop.jsonl"


def fill(path: Path) -> Outbox:
    box = Outbox(path)
    box.start_run("loop", "tiny-1", {"a": "b"})
    box.params("loop", {"lr": 0.1})
    box.metrics("loop", {"loss": 1.0}, 3)
    return box


def test_lines_come_back_in_order_and_say_when(path: Path) -> None:
    fill(path)
    lines, end = read(path, 0)
    assert [line["op"] for line in lines] == ["run", "params", "metrics"]
    assert end == path.stat().st_size
    assert lines[2]["step"] == 3
    assert lines[1]["params"] == {"lr": "0.1"}


def test_reading_goes_on_where_it_was(path: Path) -> None:
    box = fill(path)
    _, end = read(path, 0)
    assert read(path, end) == ([], end)
    box.end_run("loop", "FINISHED")
    lines, _ = read(path, end)
    assert [line["op"] for line in lines] == ["end"]


def test_nothing_there_is_nothing_to_read(path: Path) -> None:
    assert read(path, 0) == ([], 0)
    assert Outbox(path).open_runs() == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 400))
def test_a_file_cut_anywhere_loses_only_the_torn_line(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "loop.jsonl"
    path.unlink(missing_ok=True)
    fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole))])
    kept = whole[: min(cut, len(whole))].count(b"\n")
    lines, offset = read(path, 0)
    assert len(lines) == kept
    Outbox(path).tags("loop", {"after": "the kill"})
    more, _ = read(path, offset)
    assert [line["op"] for line in more][-1] == "tags"
    assert [line["op"] for line in read(path, 0)[0]][-1] == "tags"
    assert len(read(path, 0)[0]) in (kept + 1, kept + 2)


def test_threads_do_not_tear_each_others_lines(path: Path) -> None:
    box = Outbox(path)
    threads = [
        threading.Thread(target=lambda n=n: [box.metrics(f"trial-{n}", {"x": i}, i) for i in range(100)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines, _ = read(path, 0)
    assert len(lines) == 400
    for n in range(4):
        assert [line["step"] for line in lines if line["run"] == f"trial-{n}"] == list(range(100))


def test_numbers_that_no_store_takes_are_left_out(path: Path) -> None:
    Outbox(path).metrics("loop", {"a": float("nan"), "b": float("inf"), "c": float("-inf"), "d": 1})
    assert read(path, 0)[0][0]["metrics"] == {"d": 1.0}


def test_text_of_any_language_survives(path: Path) -> None:
    Outbox(path).tags("loop", {"reason": "naïve\nλ\u2028 line", "lone": "\ud800"})
    ((line,), _) = read(path, 0)
    assert line["tags"]["reason"] == "naïve\nλ\u2028 line"


def test_open_runs_are_those_begun_and_not_ended(path: Path) -> None:
    box = Outbox(path)
    box.start_run("loop", "l", {})
    box.start_run("trial-0", "t0", {}, parent="loop")
    box.start_run("trial-1", "t1", {}, parent="loop")
    box.end_run("trial-0", "FINISHED")
    assert box.open_runs() == ["loop", "trial-1"]
    box.start_run("trial-0", "t0", {}, parent="loop")
    assert set(box.open_runs()) == {"loop", "trial-0", "trial-1"}


def test_a_full_disk_is_a_store_error(path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    with pytest.raises(StoreError, match="disk is full"):
        Outbox(path).tags("loop", {"a": "b" * 20000})


def test_the_file_is_json_lines(path: Path) -> None:
    fill(path)
    assert all(json.loads(line)["run"] == outbox.LOOP_RUN for line in path.read_text().splitlines())
