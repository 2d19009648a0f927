"""The table of a log: what a reader needs stays, and what delta-rs cannot do is an error with a cure."""

import os
import time

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from models.errors import StoreError
from tasks.state.delta.delta_log import DeltaLog
from tests.unit.tasks.state.delta.test_delta_log import ids, log_in, rows


def _age_commits(log: DeltaLog) -> None:
    old = time.time() - 1000
    for path in (log.folder / "_delta_log").iterdir():
        os.utime(path, (old, old))


def test_cleaning_keeps_what_a_reader_needs_that_listed_the_commits_just_before(tmp_path):
    """With it deleted, 155 of 1,713 openings beside a compactor failed."""
    log = log_in(tmp_path)
    commits = log.folder / "_delta_log"
    for turn in range(4):
        for number in range(8):
            log.append(rows(8 * turn + number, 1))
        _age_commits(log)
        checkpoint = max(commits.glob("*.checkpoint.parquet"), default=None)
        needed = [path for path in commits.glob("*.json") if checkpoint is None or path.name > checkpoint.name[:20]]
        assert log.compact()
        assert all(path.exists() for path in [*needed, *([checkpoint] if checkpoint else [])])
        assert len(ids(log_in(tmp_path).scan())) == 8 * turn + 8
        assert len(list(commits.iterdir())) <= 24  # old commits are deleted all the same


@pytest.mark.parametrize("keep", [0, 100])
def test_a_checkpoint_damaged_by_a_loss_of_power_loses_nothing(tmp_path, keep):
    """delta-rs names a checkpoint before it is on disk."""
    log = log_in(tmp_path)
    for number in range(16):
        log.append(rows(number, 1), key=str(number), offsets={"segment": number})
        if number % 8 == 7:
            _age_commits(log)
            log.compact()
    newest = max((log.folder / "_delta_log").glob("*.checkpoint.parquet"))
    os.truncate(newest, keep)
    again = log_in(tmp_path)
    assert ids(again.scan()) == [str(number) for number in range(16)]
    assert again.has("0")
    assert again.offsets(["segment"]) == {"segment": 15}
    log.append(rows(16, 1))
    log.compact()
    assert len(ids(log_in(tmp_path).scan())) == 17


def test_a_checkpoint_that_cannot_be_written_is_an_error_of_the_store(tmp_path, monkeypatch):
    """The compactor goes on after it; delta-rs' own error ended it."""
    log = log_in(tmp_path)
    for number in range(8):
        log.append(rows(number, 1))

    def full(_: DeltaTable) -> None:
        raise DeltaError("Generic LocalFileSystem error: No space left on device (os error 28)")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", full)
    with pytest.raises(StoreError, match=r"no checkpoint was made.*disk is full"):
        log.compact()
    assert len(ids(log.scan())) == 8


def test_a_commit_that_cannot_be_written_is_an_error_of_the_store(tmp_path, monkeypatch):
    """delta-rs gives it the class of a lost race: repeated as one, the compactor would wait for other hosts."""
    log = log_in(tmp_path)
    log.append(rows(0, 1))

    def full(*_: object, **options: object) -> None:
        raise CommitFailedError("Generic LocalFileSystem error: No space left on device (os error 28)")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", full)
    with pytest.raises(StoreError, match=r"log: nothing was committed \(.*disk is full"):
        log.append(rows(1, 1))
    assert ids(log.scan()) == ["0"]
