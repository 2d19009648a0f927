"""The table of records that several hosts share: numbered, once, merged and forgotten without a change of cursors."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from models.errors import StoreError
from tasks.host.store_addresses import ROOT
from tasks.state.delta import delta_log
from tasks.state.delta.log_table import LogTable
from tasks.state.delta.shared_log import SharedLog, shared_log


@pytest.fixture
def log(tmp_path: Path) -> SharedLog:
    return SharedLog((tmp_path / "served").as_uri())


def records(log: SharedLog, since: int = 0) -> list[tuple[int, str]]:
    return [one for span in log.records(since) for one in span.by_kind.get("predictions", [])]


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
    assert log.add("predictions", ["a", "b"], {"host/1.seg": 10}) == 1
    assert log.add("predictions", ["a", "b"], {"host/1.seg": 10}) == 0
    assert log.add("labels", ["l"], {"host/2.seg": 3}) == 2
    assert log.add("predictions", [], {"host/1.seg": 11}) == 0
    assert log.offsets(["host/1.seg", "host/2.seg", "host/3.seg"]) == {
        "host/1.seg": 10,
        "host/2.seg": 3,
        "host/3.seg": 0,
    }
    assert records(log) == [(1, "a"), (1, "b")]
    assert [span.upto for span in log.records(1)] == [2]
    assert [*log.records(2)] == []


@pytest.mark.parametrize("is_one_host", [False, True], ids=["hosts", "threads"])
def test_all_that_commit_at_once_get_a_number_each(log: SharedLog, *, is_one_host: bool) -> None:
    logs = [log if is_one_host else SharedLog(log.place.address) for _ in range(4)]
    start = threading.Barrier(4)

    def add(place: int) -> int:
        start.wait()
        return logs[place].add("predictions", [f"{place}"], {f"{place}": 1})

    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(add, range(4)))
    assert sorted(numbers) == [1, 2, 3, 4]
    assert sorted(record for _, record in records(log)) == ["0", "1", "2", "3"]


def test_merging_and_forgetting_change_no_cursor(log: SharedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "FEWEST_PARTS", 3)
    for number in range(4):
        log.add("predictions", [f"{number}-{place}" for place in range(3)], {f"{number}": 1})
    before = records(log)
    assert log.compact() == 4
    assert log.compact() == 0
    assert len(log.parts()) == 1
    assert (records(log), log.cursor()) == (before, 4)
    assert records(log, 2) == before[6:]
    monkeypatch.setattr("tasks.state.delta.shared_log.SPAN_BYTES", 12)  # an append has nine bytes
    assert [span.upto for span in log.records(0)] == [1, 2, 3, 4], "the memory of a reader has a bound"
    assert records(log) == before
    cut = time.time_ns() // 1000
    log.add("predictions", ["new"], {"n": 1})
    log.forget(cut)
    assert (records(log), log.cursor()) == ([(5, "new")], 5)


def test_a_merged_file_has_a_bound_and_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "FEWEST_PARTS", 3)
    for number in range(9):
        SharedLog(tmp_path.as_uri()).add("predictions", [os.urandom(5_000).hex()], {"host/1.seg": number + 1})
    bound = int(3.5 * SharedLog(tmp_path.as_uri()).parts()[0].size)
    monkeypatch.setattr("tasks.state.delta.shared_log.MERGED_BYTES", bound)
    log = SharedLog(tmp_path.as_uri())
    assert log.compact() >= 6
    assert log.compact() == 0
    full = log.parts()
    assert len(full) > 1
    assert all(part.size <= bound for part in full)
    assert [number for number, _ in records(log)] == [*range(1, 10)]


def before_the_next(call: str, act: Callable[[], object], owner: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another host act just before this one makes a call."""
    original = getattr(owner, call)

    def called(*args: object, **options: object) -> object:
        monkeypatch.setattr(owner, call, original)
        act()
        return original(*args, **options)

    monkeypatch.setattr(owner, call, called)


@pytest.mark.parametrize("first", ["compact", "forget"])
@pytest.mark.parametrize("second", ["compact", "forget"])
@pytest.mark.parametrize("call", ["commit", "create_write_transaction"])
def test_of_two_hosts_that_replace_files_at_once_one_succeeds(
    log: SharedLog, monkeypatch: pytest.MonkeyPatch, first: str, second: str, call: str
) -> None:
    monkeypatch.setattr(delta_log, "FEWEST_PARTS", 2)
    for number in range(4):
        log.add("predictions", [f"{number}"], {"host/1.seg": number + 1})
    cut = log.parts()[2].times[0]
    acts = {"compact": SharedLog.compact, "forget": lambda one: one.forget(cut)}
    done = []
    owner = LogTable if call == "commit" else DeltaTable
    before_the_next(call, lambda: done.append(acts[first](log)), owner, monkeypatch)
    acts[second](SharedLog(log.address))
    assert done == [4 if first == "compact" else 2]
    found = records(SharedLog(log.address))
    assert [record for _, record in found] == (["0", "1", "2", "3"] if first == "compact" else ["2", "3"])


@pytest.mark.parametrize("act", ["compact", "forget"])
def test_a_host_appends_while_another_replaces_files(log: SharedLog, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    monkeypatch.setattr(delta_log, "FEWEST_PARTS", 4)
    for number in range(4):
        log.add("predictions", [f"{number}"], {"host/1.seg": number + 1})
    add = lambda: SharedLog(log.address).add("predictions", ["4"], {"host/1.seg": 5})  # noqa: E731
    cut = time.time_ns() // 1000
    before_the_next("create_write_transaction", add, DeltaTable, monkeypatch)
    assert (log.compact() if act == "compact" else log.forget(cut)) == 4
    kept = range(5) if act == "compact" else [4]
    assert records(log) == [(number + 1, str(number)) for number in kept]


def test_a_table_that_was_emptied_is_an_error(log: SharedLog) -> None:
    log.add("predictions", ["a"], {"a": 1})
    with pytest.raises(StoreError, match="has 1 appends, but 2 were read"):
        next(log.records(2))


def test_an_empty_one_has_nothing(log: SharedLog) -> None:
    assert (log.cursor(), log.compact(), [*log.records(0)]) == (0, 0, [])
    log.forget(1)


@pytest.mark.parametrize("content", [b"x" * 2000, b""])
def test_a_damaged_file_is_an_error_with_a_cure(log: SharedLog, tmp_path: Path, content: bytes) -> None:
    log.add("predictions", ["a"], {"a": 1})
    next((tmp_path / "served").glob("*.parquet")).write_bytes(content)
    with pytest.raises(StoreError, match=r"^LOOPLINE_ROOT: .*served: the log "):
        records(log)
