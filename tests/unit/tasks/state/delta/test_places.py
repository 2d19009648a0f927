"""Where a log's files are: what a loss of power or a kill leaves of a commit adds nothing twice and loses nothing."""

import os
import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tasks.state.delta.places import commits_since_checkpoint
from tests.killing import CLEAN
from tests.unit.tasks.state.delta.test_delta_log import ids, log_in, rows


def newest_commit(folder: Path) -> Path:
    return max((folder / "log" / "_delta_log").glob("*.json"))


def torn(content: bytes, how: str) -> bytes:
    lines = content.splitlines(keepends=True)
    return {
        "empty": b"",
        "zeros": bytes(len(content)),
        "half a line": content[: len(content) // 2],
        "whole lines": b"".join(lines[:-1]),
        "all but the last byte": content[:-1],
    }[how]


@pytest.mark.parametrize("how", ["empty", "zeros", "half a line", "whole lines", "all but the last byte"])
@pytest.mark.parametrize("act", ["read", "append", "offsets"])
def test_a_newest_commit_that_was_torn_is_dropped_and_its_rows_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, act: str
) -> None:
    log = log_in(tmp_path)
    for number in range(3):
        log.append(rows(number, 1), offsets={"segment": number + 1, "other": number + 1})
    path = newest_commit(tmp_path)
    path.write_bytes(torn(path.read_bytes(), how))
    log = log_in(tmp_path)
    if act == "read":
        assert ids(log.scan()) == ["0", "1"]
    if act == "offsets":
        assert log.offsets(["segment"]) == {"segment": 2}
    assert log.append(rows(2, 1), offsets={"segment": 3, "other": 3}) == 3
    assert ids(log_in(tmp_path).scan()) == ["0", "1", "2"]
    assert "torn by a loss of power" in caplog.text
    versions = sorted(int(path.stem) for path in newest_commit(tmp_path).parent.glob("*.json"))
    assert versions == list(range(len(versions)))


def test_a_torn_first_commit_leaves_no_table(tmp_path: Path) -> None:
    log_in(tmp_path).append(rows(0, 1))
    newest_commit(tmp_path).unlink()
    newest_commit(tmp_path).write_bytes(b"")
    assert ids(log_in(tmp_path).scan()) == []
    assert log_in(tmp_path).append(rows(1, 1)) == 1
    assert ids(log_in(tmp_path).scan()) == ["1"]


def test_a_torn_merge_or_deletion_leaves_the_rows_in_the_files_before(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    for number in range(8):
        log.append(rows(number, 1))
    commits = tmp_path / "log" / "_delta_log"
    before = {path.name for path in commits.iterdir()}
    log._merge()
    assert len(log.parts()) == 1
    assert {path.name for path in commits.iterdir()} - before == {newest_commit(tmp_path).name}
    newest_commit(tmp_path).write_bytes(b"{")
    assert ids(log_in(tmp_path).scan()) == [str(number) for number in range(8)]
    assert log_in(tmp_path).compact() == 8


@pytest.mark.parametrize("gap", ["create_write_transaction", "update_incremental", "add_columns"])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_kill_beside_any_call_of_delta_rs_adds_each_row_once(tmp_path: Path, gap: str, is_after: bool) -> None:
    log_in(tmp_path).append(rows(0, 1), key="0")
    process = CLEAN.Process(target=_append_and_die, args=(tmp_path, gap, is_after))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    log = log_in(tmp_path)
    assert ids(log.scan()) in (["0"], ["0", "1"])
    log.append(rows(1, 1), key="1")
    log.append(rows(2, 1), key="2")
    assert ids(log_in(tmp_path).scan()) == ["0", "1", "2"]
    assert commits_since_checkpoint(log.folder) <= 6


def _append_and_die(folder: Path, gap: str, is_after: bool) -> None:
    import pyarrow as pa
    from deltalake.table import TableAlterer

    owner = TableAlterer if gap == "add_columns" else DeltaTable
    original = getattr(owner, gap)

    def dying(*args: object, **options: object) -> None:
        if is_after:
            original(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    log = log_in(folder)
    log.cursor()
    setattr(owner, gap, dying)
    log.append(rows(1, 1).append_column("raw.new", pa.array([1.0])), key="1")
    log.append(rows(2, 1), key="2")
