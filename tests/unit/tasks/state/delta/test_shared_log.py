"""The table of records that several hosts share: numbered, once, merged and forgotten without a change of cursors."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.host.store_addresses import ROOT
from tasks.state.delta.shared_log import SharedLog, shared_log


@pytest.fixture
def log(tmp_path: Path) -> SharedLog:
    return SharedLog(str(tmp_path / "served"))


def records(log: SharedLog, since: int = 0) -> list[tuple[int, str]]:
    return [one for span in log.scan(since) for one in span.by_kind.get("predictions", [])]


def test_only_a_root_on_s3_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT, raising=False)
    assert shared_log(tmp_path / "tiny") is None
    monkeypatch.setenv(ROOT, f"file://{tmp_path}")
    assert shared_log(tmp_path / "tiny") is None
    monkeypatch.setenv(ROOT, "s3://lab/ws")
    found = shared_log(tmp_path / "tiny")
    assert found is not None
    assert found.address == "s3://lab/ws/projects/tiny/served"


def test_what_has_an_offset_is_not_added_again(log: SharedLog) -> None:
    assert log.append("predictions", ["a", "b"], {"host/1.seg": 10}) == 1
    assert log.append("predictions", ["a", "b"], {"host/1.seg": 10}) == 0
    assert log.append("labels", ["l"], {"host/2.seg": 3}) == 2
    assert log.append("predictions", [], {"host/1.seg": 11}) == 0
    assert log.offsets(["host/1.seg", "host/2.seg", "host/3.seg"]) == {
        "host/1.seg": 10,
        "host/2.seg": 3,
        "host/3.seg": 0,
    }
    assert records(log) == [(1, "a"), (1, "b")]
    assert [span.upto for span in log.scan(1)] == [2]
    assert [*log.scan(2)] == []


def test_hosts_that_commit_at_once_get_a_number_each(log: SharedLog) -> None:
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda one: log.append("predictions", [f"{one}"], {f"{one}": 1}), range(4)))
    assert sorted(numbers) == [1, 2, 3, 4]
    assert sorted(record for _, record in records(log)) == ["0", "1", "2", "3"]


def test_merging_and_forgetting_change_no_cursor(log: SharedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.state.delta.shared_log.MOST_FILES", 3)
    for number in range(4):
        log.append("predictions", [f"{number}-{place}" for place in range(3)], {f"{number}": 1})
    before = records(log)
    assert log.compact() == 3
    assert log.compact() == 0
    assert (records(log), log.cursor()) == (before, 4)
    assert records(log, 2) == before[6:]
    monkeypatch.setattr("tasks.state.delta.shared_log.SPAN_BYTES", 12)  # an append has nine bytes
    assert [span.upto for span in log.scan(0)] == [1, 2, 3, 4], "the memory of a reader has a bound"
    assert records(log) == before
    cut = time.time_ns() // 1000
    log.append("predictions", ["new"], {"n": 1})
    log.forget(cut)
    assert (records(log), log.cursor()) == ([(5, "new")], 5)


def test_merging_leaves_files_of_full_size_alone(log: SharedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.state.delta.shared_log.MOST_FILES", 3)
    monkeypatch.setattr("tasks.state.delta.shared_log.SPAN_BYTES", 4)
    for number in range(7):
        log.append("predictions", ["ab"], {"host/1.seg": number + 1})
    assert log.compact() == 3  # 2 + 2 + 2 + 1
    full = {*log._opened().file_uris()}
    log.append("predictions", ["cd"], {"host/1.seg": 8})
    assert log.compact() == 1
    assert len(full & {*log._opened().file_uris()}) == 3
    assert [number for number, _ in records(log)] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("first", ["compact", "forget"])
@pytest.mark.parametrize("second", ["compact", "forget"])
def test_of_two_hosts_that_replace_files_at_once_one_succeeds(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.setattr("tasks.state.delta.shared_log.MOST_FILES", 2)
    for number in range(4):
        log.append("predictions", [f"{number}"], {"host/1.seg": number + 1})
    middle = records(log)[2][0]
    times = log._opened().to_pyarrow_dataset().to_table().sort_by("append").column("at").to_pylist()
    act = {"compact": SharedLog.compact, "forget": lambda one: one.forget(times[middle - 1])}
    late = SharedLog(log.address)
    seen_before = late._opened()
    monkeypatch.setattr(late, "_opened", lambda: seen_before)
    act[first](log)
    done = records(log)
    act[second](late)
    assert records(log) == done
    assert len({*done}) == len(done) == (4 if first == "compact" else 2)


def test_a_table_that_was_emptied_is_an_error(log: SharedLog) -> None:
    log.append("predictions", ["a"], {"a": 1})
    with pytest.raises(StoreError, match="has 1 appends, but 2 were read"):
        next(log.scan(2))


def test_an_empty_one_has_nothing(log: SharedLog) -> None:
    assert (log.cursor(), log.compact(), [*log.scan(0)]) == (0, 0, [])
    log.forget(1)


@pytest.mark.parametrize("content", [b"x" * 2000, b""])
def test_a_damaged_file_is_an_error_with_a_cure(log: SharedLog, content: bytes) -> None:
    log.append("predictions", ["a"], {"a": 1})
    next(Path(log.address).glob("*.parquet")).write_bytes(content)
    with pytest.raises(StoreError, match=r"^LOOPLINE_ROOT: .*served: the log "):
        records(log)
