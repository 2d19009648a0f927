"""Which ids were predicted, by files of sorted hashes: what the log says, though parts change and files are damaged."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.state import predicted_ids
from tasks.state.delta.delta_log import DeltaLog
from tasks.state.predicted_ids import FOLDER, are_known, id_hashes
from tasks.state.predictions import prediction_log


@pytest.fixture(autouse=True)
def _used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicted_ids, "LEAST_ROWS", 3)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Parts of 4 rows and of 1 row."""
    made = prediction_log(tmp_path)
    append(made, "a", "b", "c", "d")
    append(made, "e")
    return made


def append(log: DeltaLog, *ids: str, at: int = 1) -> None:
    times = pa.array(range(at, at + len(ids)), pa.timestamp("us", tz="UTC"))
    log.append(pa.table({"id": list(ids), "at": times}))


def known(log: DeltaLog, *ids: str) -> list[str]:
    hashes = id_hashes(pa.chunked_array([list(ids)]))
    order = np.argsort(hashes)
    return sorted(np.array(ids)[order[are_known(log, hashes[order])]].tolist())


def files(log: DeltaLog) -> list[Path]:
    return sorted((log.folder / FOLDER).glob("*"))


def test_few_ids_and_many_are_looked_up_and_large_parts_are_read_once(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert known(log, "a", "nobody") == ["a"]
    assert len(files(log)) == 1, "the small part has none"
    monkeypatch.setattr(log, "scan", lambda since, *_: [] if since else pytest.fail("the large part was read again"))
    assert known(log, "d") == ["d"]
    assert known(log, *"abcdxyz") == list("abcd")
    assert known(log) == []


def test_rows_that_were_forgotten_are_not_known_and_their_file_goes(log: DeltaLog) -> None:
    assert known(log, "a", "d") == ["a", "d"]
    (before,) = files(log)
    assert log.forget(2) == 2, "the first row of each part"
    assert known(prediction_log(log.folder.parent), *"abcde") == ["b", "c", "d"]
    assert before not in files(log)
    assert len(files(log)) == 1


def test_a_file_that_is_damaged_or_gone_is_made_anew(log: DeltaLog) -> None:
    known(log, "nobody")
    (path,) = files(log)
    for content in (b"", b"no array", path.read_bytes()[:-3]):
        path.write_bytes(content)
        assert known(log, "c", "nobody") == ["c"]
    path.unlink()
    assert known(log, "c") == ["c"]


def test_a_folder_that_cannot_be_written_is_read_each_time(log: DeltaLog) -> None:
    (log.folder / FOLDER).write_text("in the way")
    assert known(log, "a", "e", "nobody") == ["a", "e"]


def test_compacted_parts_are_known_by_their_new_file(log: DeltaLog) -> None:
    known(log, "nobody")
    for number in range(9):
        append(log, f"n{number}", at=10 + number)
    assert log.compact()
    assert known(prediction_log(log.folder.parent), "a", "e", "n8", "nobody") == ["a", "e", "n8"]
