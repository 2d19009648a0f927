import contextlib
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from models.errors import StoreError
from models.monitoring.examples import KeyedPredictions
from models.monitoring.tally import PredictionCounts
from models.monitoring.windowing import OpenWindow
from tasks.state import monitoring_store as monitoring_store
from tasks.state.monitoring_store import FILE, MonitorStore, opened
from tests.unit.models.monitoring.conftest import window


def filled(first: int, num: int = 10, size: int = 10) -> OpenWindow:
    keys = np.arange(first, first + num, dtype=np.uint64)
    examples = KeyedPredictions.empty().with_more(keys, keys / 100)
    return OpenWindow(first, size, float(first), float(first + num), {0: PredictionCounts(num)}, [keys], examples)


def firsts(store: MonitorStore, version: str = "1") -> list[int]:
    return store.changed(version)


def test_what_was_saved_is_there_after_reopening(tmp_path: Path) -> None:
    with opened(tmp_path) as store, store.transaction():
        store.save("1", filled(0))
        store.save("1", filled(10, 4))
        store.set_place("predictions", 7)
    with opened(tmp_path) as store:
        assert store.place("predictions") == 7
        assert store.versions() == ["1"]
        assert store.num_predictions() == 14
        last = store.last_window("1", 99)
        assert (last.first, last.num_rows, last.size, last.is_whole) == (10, 4, 10, False)
        assert last.examples.prediction.tolist() == [0.1, 0.11, 0.12, 0.13]
        assert store.seen("1").new(np.array([3, 13, 14], np.uint64)).tolist() == [False, False, True]
        assert store.last_window("2", 99).size == 99


def test_what_raises_within_a_transaction_was_never_there(tmp_path: Path) -> None:
    def half_done(store: MonitorStore) -> None:
        with store.transaction():
            store.save("1", filled(0))
            store.set_place("predictions", 7)
            raise KeyError

    with opened(tmp_path) as store:
        with pytest.raises(KeyError):
            half_done(store)
        assert (store.versions(), store.place("predictions")) == ([], 0)


def test_a_window_is_looked_at_until_something_is_found_and_again_when_a_label_comes(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.save("1", filled(0))
        assert firsts(store) == [0]
        store.save_report("1", 0, window(0))
        assert firsts(store) == []
        assert [found.id for found in store.reports("1")] == ["1/0"]
        ((version, first, examples),) = store.with_examples()
        store.save_examples(version, first, examples.with_labels(np.array([3], np.uint64), np.array([1.0]))[0])
        assert firsts(store) == [0]
        assert store.window("1", 0).examples.labelled.sum() == 1
        store.save_report("1", 0, window(0))
        store.settle("other rules")
        assert firsts(store) == [0]
        store.save_report("1", 0, window(0))
        store.settle("other rules")
        assert firsts(store) == []


def test_labels_wait_and_stop_waiting(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        keys = np.array([2**64 - 1, 5], np.uint64)
        store.wait(keys, ["a", "b"])
        store.wait(keys[1:], ["c"])
        found, labels = store.waiting()
        assert dict(zip(found.tolist(), labels, strict=True)) == {2**64 - 1: "a", 5: "c"}
        store.no_longer_wait(keys[:1])
        assert store.num_waiting() == 1


def test_of_too_many_labels_that_wait_the_last_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring_store, "MOST_WAITING", 3)
    with opened(tmp_path) as store:
        for first in (10, 5, 0):
            store.wait(np.array([first, first + 1], np.uint64), ["a", "b"])
        store.wait(np.array([6], np.uint64), ["again"])
        assert sorted(zip(*store.waiting(), strict=True)) == [(0, "a"), (1, "b"), (6, "again")]


def test_a_store_of_before_it_was_noted_when_a_label_came(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / monitoring_store.FILE)) as before:
        before.execute("create table waiting (key integer primary key, label text not null)")
        before.execute("insert into waiting values (7, 'a')")
        before.commit()
    for _ in range(2):
        with opened(tmp_path) as store:
            store.wait(np.array([8], np.uint64), ["b"])
            assert sorted(zip(*store.waiting(), strict=True)) == [(7, "a"), (8, "b")]


def test_the_oldest_windows_go_and_the_count_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring_store, "MOST_WINDOWS", 3)
    monkeypatch.setattr(monitoring_store, "REMEMBERED", 15)
    with opened(tmp_path) as store:
        for first in range(0, 50, 10):
            store.save("1", filled(first))
        store.save_report("1", 0, window(0, num_labels=7))
        store.forget("1")
        assert store.num_forgotten_labels() == 7
        assert firsts(store) == [20, 30, 40]
        assert store.num_predictions() == 50
        assert store.seen("1").new(np.array([25, 35, 45], np.uint64)).tolist() == [True, False, False]


def test_what_was_told_and_sent_is_remembered(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.save("1", filled(0))
        store.save("1", filled(10, 4))
        for first in (0, 10):
            store.save_report("1", first, window(first))
        assert [(first, told) for first, _, told in store.unlogged("1")] == [(0, "")]
        store.set_logged("1", 0, "abc")
        assert [told for _, _, told in store.unlogged("1")] == ["abc"]
        assert not store.was_sent("s")
        store.set_sent("s")
        assert store.was_sent("s")


def test_a_file_that_is_no_database_is_said_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, but long enough to be taken for one by its size " * 20)
    with pytest.raises(StoreError, match="remove the file"), opened(tmp_path):
        pass
