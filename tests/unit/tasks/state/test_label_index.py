"""The index by id says what the log says: at any cursor, behind the log, damaged, and when rows were forgotten."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tasks.gc.prediction_retention import forget_old
from tasks.state import label_index
from tasks.state.add_labels import add_labels
from tasks.state.delta.delta_log import DeltaLog
from tasks.state.predictions import label_store, latest_labels

IDS = pa.chunked_array([["a", "b", "c", "nobody"]])


@pytest.fixture(autouse=True)
def _used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_index, "SCAN_FACTOR", 0)  # however small the log is


def labels(*rows: tuple[str, str, int]) -> pa.Table:
    ids, texts, at = ([row[place] for row in rows] for place in range(3))
    return pa.table(
        {"id": ids, "label": texts, "at": pa.array(at, pa.timestamp("us", tz="UTC")), "by": ["Ada"] * len(rows)}
    )


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for rows in ([("a", "1", 5), ("b", "2", 4)], [("a", "3", 1)], [("c", "4", 9), ("c", "5", 9)], [("b", "6", 2)]):
        label_store(tmp_path).append(labels(*rows))
    return tmp_path


def texts(state: Path, upto: int | None = None) -> list[str | None]:
    return list(latest_labels(label_store(state), IDS, upto).column("label").to_pylist())


def by_scan(state: Path, monkeypatch: pytest.MonkeyPatch, upto: int) -> list[dict[str, Any]]:
    with monkeypatch.context() as patch:
        patch.setattr(label_index, "SCAN_FACTOR", 1 << 40)
        return list(latest_labels(label_store(state), IDS, upto).to_pylist())


@pytest.mark.parametrize("is_compacted", [False, True])
def test_it_says_what_the_log_says_at_every_cursor(
    state: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    if is_compacted:
        for moment in range(10, 16):
            label_store(state).append(labels(("z", str(moment), moment)))
        assert label_store(state).compact() == 10
    for upto in range(5):
        found = latest_labels(label_store(state), IDS, upto).to_pylist()
        assert found == by_scan(state, monkeypatch, upto)
    assert texts(state) == ["3", "6", "5", None]


def test_labels_appended_by_a_process_that_was_killed_then_are_known(state: Path) -> None:
    assert texts(state)[0] == "3"
    label_store(state).append(labels(("a", "7", 20)))  # killed before anything else
    assert add_labels(state, labels(("a", "7", 21)))[1] == {"taken": 0, "corrected": 0, "repeated": 1}
    assert texts(state)[0] == "7"


@pytest.mark.parametrize("spoil", ["gone", "damaged", "of a longer log"])
def test_it_is_made_anew_from_the_log(state: Path, spoil: str) -> None:
    path = state / "labels" / label_index.FILE
    before = texts(state)
    if spoil == "gone":
        label_index.remove(state / "labels")
    elif spoil == "damaged":
        label_index.remove(state / "labels")
        path.write_bytes(b"no database" * 1000)
    else:
        commits = sorted((state / "labels" / "_delta_log").glob("*.json"))
        commits[-1].unlink()
        before = ["3", "2", "5", None]
    assert texts(state) == before
    assert texts(state) == before
    assert path.exists()


def test_what_was_forgotten_is_not_known_any_more(state: Path) -> None:
    assert texts(state) == ["3", "6", "5", None]
    forget_old(state, 3, spare_labelled=False)
    assert texts(state) == ["1", "2", "5", None]


def test_taking_in_reads_only_what_came_since(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what it cost in seconds: how many rows of the log were read, which is what it costs."""
    label_store(state).append(labels(*((f"old {place}", "x", place) for place in range(3000))))
    add_labels(state, labels(("d", "1", 30)))
    num_read = 0
    scan = DeltaLog.scan

    def counted(self: DeltaLog, *args: Any, **options: Any) -> Iterator[pa.Table]:
        nonlocal num_read
        for table in scan(self, *args, **options):
            num_read += table.num_rows
            yield table

    monkeypatch.setattr(DeltaLog, "scan", counted)
    for turn in range(3):
        add_labels(state, labels(*((f"new {turn} {place}", "x", 31) for place in range(10))))
    assert num_read == 1 + 10 + 10
