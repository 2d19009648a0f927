"""The log that many processes write, read and compact: no row lost, none twice, whatever happens in between."""

import os
import shutil
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from models.errors import StoreError
from models.sources.row_batches import concatenated
from tasks.state.delta import delta_log
from tasks.state.delta.delta_log import DeltaLog
from tasks.state.delta.places import commits_since_checkpoint
from tests.killing import CLEAN
from tests.wide import examples, wide

FIELDS = pa.schema({"id": pa.string(), "at": pa.timestamp("us", tz="UTC"), "value": pa.float64()})


def rows(first: int, count: int, start: float = 0.0) -> pa.Table:
    ids = [str(number) for number in range(first, first + count)]
    at = [datetime.fromtimestamp(start + number, UTC) for number in range(count)]
    return pa.table({"id": ids, "at": pa.array(at, FIELDS.field("at").type)})


def ids(tables) -> list[str]:
    return [one for table in tables for one in table.column("id").to_pylist()]


def log_in(folder: Path) -> DeltaLog:
    return DeltaLog(folder / "log", FIELDS)


def test_what_is_appended_is_read_back_by_any_instance(tmp_path):
    log = log_in(tmp_path)
    assert (log.cursor(), list(log.scan()), log.compact()) == (0, [], 0)
    assert log.append(rows(0, 3)) == 1
    assert log.append(rows(3, 2)) == 2
    assert ids(log_in(tmp_path).scan()) == ["0", "1", "2", "3", "4"]
    assert next(log.scan()).schema.field("value").type == pa.float64()
    assert [(part.first, part.last, part.rows) for part in log.parts()] == [(1, 1, 3), (2, 2, 2)]
    assert [part.times for part in log.parts()] == [(0, 2_000_000), (0, 1_000_000)]


def test_a_cursor_of_before_all_was_removed_ends_where_the_log_ends(tmp_path):
    """Removing all is the cure that a log names which has lost a file; readers keep the cursors they had."""
    log = log_in(tmp_path)
    log.append(rows(0, 3))
    assert ids(log.scan(upto=5)) == ["0", "1", "2"]
    assert ids(log.scan(since=3, upto=5)) == []
    reading = log.scan(upto=1, batch=1)
    next(reading)
    shutil.rmtree(log.folder)
    assert ids(log.scan(upto=1)) == []
    assert len(ids(reading)) < 3


def test_an_empty_append_adds_nothing(tmp_path):
    assert log_in(tmp_path).append(rows(0, 0)) == 0


def test_the_same_key_adds_nothing_again_after_compaction_too(tmp_path):
    log = log_in(tmp_path)
    for number in range(delta_log.FEWEST_PARTS):
        log.append(rows(number, 1), key=f"k{number}")
    assert log.append(rows(99, 1), key="k3") == delta_log.FEWEST_PARTS
    assert log.compact() == delta_log.FEWEST_PARTS
    assert log_in(tmp_path).append(rows(99, 1), key="k3") == delta_log.FEWEST_PARTS
    assert "99" not in ids(log.scan())


@examples(25)
@given(sizes=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 50)), max_size=30), data=st.data())
def test_compaction_changes_nothing_for_any_reader(tmp_path_factory, sizes, data):
    log = log_in(tmp_path_factory.mktemp("log"))
    first = 0
    for count, start in sizes:
        log.append(rows(first, count, start))
        first += count
    since = data.draw(st.integers(0, len(sizes)))
    upto = data.draw(st.integers(0, len(sizes)))
    low, high = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 60))
    before = sorted(ids(log.scan(since, upto)))
    ordered = concatenated([rows(0, 0), *log.in_time_order(low * 10**6, high * 10**6)])
    log.compact()
    assert log.cursor() == len(sizes)
    assert sorted(ids(log_in(log.folder.parent).scan(since, upto))) == before
    assert sorted(ids(log.scan(columns=["id"]))) == sorted(str(number) for number in range(first))
    after = concatenated([rows(0, 0), *log.in_time_order(low * 10**6, high * 10**6)])
    assert after.column("at").to_pylist() == sorted(after.column("at").to_pylist())
    assert ordered.column("at").to_pylist() == after.column("at").to_pylist()
    assert sorted(ids([ordered])) == sorted(ids([after]))


def test_a_cursor_goes_on_where_it_was_within_a_compacted_part(tmp_path):
    log = log_in(tmp_path)
    for number in range(20):
        log.append(rows(number, 1, start=100 - number))
    log.compact()
    assert len(log.parts()) == 1
    assert ids(log.scan(since=17)) == ["17", "18", "19"]
    assert ids(log.scan(since=3, upto=5)) == ["3", "4"]


def test_a_reader_under_way_sees_each_row_once_while_parts_are_compacted(tmp_path):
    log = log_in(tmp_path)
    for number in range(delta_log.FEWEST_PARTS * 2):
        log.append(rows(number * 2, 2, start=number * 10))
    for read in (log.scan, log.in_time_order):
        seen = []
        for table in read():
            seen += ids([table])
            log_in(tmp_path).compact()
            if log.cursor() < 100:
                log_in(tmp_path).append(rows(1000 + log.cursor(), 1))
        old = [one for one in seen if int(one) < 1000]
        assert len(old) == len(set(old))
        assert len(seen) == len(set(seen))


@pytest.mark.parametrize("in_time", [False, True])
def test_a_reader_under_way_goes_on_while_old_rows_are_forgotten(tmp_path, in_time):
    log = log_in(tmp_path)
    for number in range(4):
        log.append(rows(number * 10, 10, start=number * 10))
    reading = log.in_time_order() if in_time else log.scan()
    seen = ids([next(reading)])
    assert log_in(tmp_path).forget(25 * 10**6) == 25
    assert len(list(log.folder.glob("*.parquet"))) == 2, "what was forgotten is not on the disk any more"
    seen += ids(reading)
    assert set(map(str, range(25, 40))) <= set(seen)
    assert len(seen) == len(set(seen))


def test_versions_may_differ_in_their_columns(tmp_path):
    log = log_in(tmp_path)
    log.append(rows(0, 1).append_column("input.a", pa.array([1.5])))
    log.append(rows(1, 1, start=5).append_column("input.b", pa.array(["x"])))
    log.append(rows(2, 1, start=9).append_column("input.a", pa.array(["high"])))
    found = concatenated(list(log.in_time_order()))
    assert found.column("input.a").to_pylist() == ["1.5", None, "high"]
    assert found.column("input.b").to_pylist() == [None, "x", None]
    for number in range(delta_log.FEWEST_PARTS):
        log.append(rows(3 + number, 1, start=20 + number))
    log.compact()
    assert concatenated(list(log.in_time_order())).column("input.a").to_pylist()[:3] == ["1.5", None, "high"]


def test_a_full_disk_adds_nothing_and_says_so(tmp_path, monkeypatch):
    log = log_in(tmp_path)
    log.append(rows(0, 1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="disk is full"):
        log.append(rows(1, 1))
    assert ids(log.scan()) == ["0"]
    assert [path.name for path in log.folder.glob(".*.tmp")] == []


def middle_of(log: DeltaLog) -> Path:
    return log.folder / log.parts(1)[0].name


def test_a_commit_is_on_the_disk_after_its_files_and_stands_on_one_that_is(tmp_path, monkeypatch):
    """A loss of power tears at most the newest commit, of which nobody was told yet."""
    log, events = log_in(tmp_path), []
    log.append(rows(0, 1))
    sync, commit = os.fsync, DeltaTable.create_write_transaction

    def noted(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        events.append(path.name[-8:] if path.suffix == ".json" else path.suffix or path.name)
        sync(handle)

    def committed(*args: object, **options: object) -> None:
        events.append("commit")
        commit(*args, **options)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", committed)
    log.append(rows(1, 1))
    before, after = ["001.json", "_delta_log"], ["002.json", "_delta_log"]
    assert events == [*before, ".tmp", "log", "commit", *after], "a file has its name when it is on disk"


def test_a_missing_file_is_an_error_that_names_the_cure(tmp_path):
    log = log_in(tmp_path)
    for number in range(3):
        log.append(rows(number, 1))
    middle_of(log).unlink()
    with pytest.raises(StoreError, match=r"0002-\w+.parquet: a file of the table was deleted: .*repair"):
        list(log_in(tmp_path).scan())
    DeltaTable(log.folder).repair()
    assert ids(log_in(tmp_path).scan()) == ["0", "2"]
    assert log_in(tmp_path).append(rows(3, 1)) == 4, "the cursor survives commits of other programs"


def test_a_table_whose_log_is_damaged_is_an_error_that_names_the_cure(tmp_path):
    log = log_in(tmp_path)
    log.append(rows(0, 1))
    log.append(rows(1, 1))
    (log.folder / "_delta_log" / f"{0:020d}.json").write_text('{"add": {"pa')
    with pytest.raises(StoreError, match=r"the Delta table cannot be read .* from a backup, or remove"):
        list(log_in(tmp_path).scan())


@pytest.mark.parametrize("keep", [0, -20])
def test_a_part_without_a_whole_footer_is_set_aside_and_the_rest_is_read(tmp_path, caplog, keep):
    log = log_in(tmp_path)
    for number in range(3):
        log.append(rows(number, 1), key=f"k{number}")
    middle = middle_of(log)
    content = middle.read_bytes()[:keep]
    middle.write_bytes(content)
    log = log_in(tmp_path)
    assert ids(log.scan()) == ids(log.in_time_order()) == ["0", "2"]
    assert "the rows of the append 2 are gone; the file was moved to" in caplog.text
    assert (log.folder / "_damaged" / "000000000002-000000000002.parquet").read_bytes() == content
    assert (log.cursor(), log.has("k1"), log.append(rows(1, 1), key="k1")) == (3, False, 4)
    assert ids(log_in(tmp_path).scan()) == ["0", "2", "1"]


def test_a_part_whose_rows_cannot_be_decoded_is_set_aside_once(tmp_path):
    log = log_in(tmp_path)
    for number in range(3):
        log.append(rows(number, 100))
    path = middle_of(log)
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)  # pages, not the footer
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"the rows of the append 2 are gone; the file was moved to .*: run again"):
        list(log.scan())
    assert len(ids(log.scan())) == len(ids(log_in(tmp_path).in_time_order())) == 200
    assert (log.folder / "_damaged" / "000000000002-000000000002.parquet").read_bytes() == content


def test_what_killed_writers_left_is_removed_when_it_is_old(tmp_path):
    log = log_in(tmp_path)
    new, old = "000000000001-000000000001-aa.parquet", "000000000001-000000000001-bb.parquet"
    for number in range(delta_log.FEWEST_PARTS):
        log.append(rows(number, 1))
    torn = log.folder / "_delta_log" / f"{9:020d}.json#1"
    left = [log.folder / new, log.folder / old, torn, log.folder / "_kept"]
    for path in left:
        path.write_bytes(b"half")
        os.utime(path, (time.time() - (0 if path.name == new else 7200),) * 2)
    log.compact()
    assert [path.exists() for path in left] == [True, False, False, True]
    assert len(list(log.folder.glob("*.parquet"))) == 2 + delta_log.FEWEST_PARTS, "readers may need what was merged"
    assert commits_since_checkpoint(log.folder) == 0
    assert ids(log.scan()) == [str(number) for number in range(delta_log.FEWEST_PARTS)]


def test_pandas_reads_it(tmp_path):
    log = log_in(tmp_path / "a #1 100% ü")
    for number in range(delta_log.FEWEST_PARTS + 1):
        log.append(rows(number, 1).append_column("raw.width (mm)", pa.array([number])))
    log.compact()
    log.append(rows(10, 1))
    frame = DeltaTable(log.folder).to_pandas().sort_values("append")
    assert frame["id"].tolist() == [*map(str, range(delta_log.FEWEST_PARTS + 1)), "10"]
    assert frame["append"].tolist() == list(range(1, delta_log.FEWEST_PARTS + 3))
    assert frame["raw.width (mm)"].sum() == sum(range(delta_log.FEWEST_PARTS + 1))


def test_duckdb_reads_it(tmp_path):
    """Through Arrow; DuckDB's own `delta_scan` is an extension that it downloads."""
    import duckdb

    log = log_in(tmp_path)
    for number in range(3):
        log.append(rows(number * 10, 10))
    predictions = DeltaTable(log.folder).to_pyarrow_dataset()
    query = "select count(*), min(id), count(value), max(append) from predictions where append > 1"
    assert duckdb.from_arrow(predictions).query("predictions", query).fetchall() == [(20, "10", 0, 3)]


def test_every_type_of_arrow_is_stored(tmp_path):
    log = log_in(tmp_path)
    columns = {
        "uint64": pa.array([2**64 - 1], pa.uint64()),
        "uint8": pa.array([200], pa.uint8()),
        "half": pa.array([0.5], pa.float16()),
        "kind": pa.array(["a"]).dictionary_encode(),
        "naive": pa.array([datetime(2026, 1, 2)], pa.timestamp("ns")),
        "zoned": pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("s", tz="Europe/Berlin")),
        "hour": pa.array([time_of_day(12, 30)], pa.time32("s")),
        "span": pa.array([timedelta(hours=1)], pa.duration("us")),
        "nested": pa.array([{"a": 1}]),
        "pair": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
        "bytes": pa.array([b"\xff"], pa.large_binary()),
        "nothing": pa.nulls(1),
    }
    table = rows(0, 1)
    for name, column in columns.items():
        table = table.append_column(f"raw.{name}", column)
    log.append(table)
    (row,) = next(log.scan()).to_pylist()
    assert row == DeltaTable(log.folder).to_pyarrow_table().drop_columns(["append"]).to_pylist()[0]
    assert {name: row.get(f"raw.{name}") for name in columns} == {
        "uint64": Decimal(2**64 - 1),
        "uint8": 200,
        "half": 0.5,
        "kind": "a",
        "naive": datetime(2026, 1, 2),
        "zoned": datetime(2026, 1, 2, tzinfo=UTC),
        "hour": "12:30:00",
        "span": "3600000000",
        "nested": '{"a": 1}',
        "pair": [1.0, 2.0],
        "bytes": b"\xff",
        "nothing": None,
    }


def test_offsets_and_rows_are_one_commit(tmp_path):
    log = log_in(tmp_path)
    assert log.offsets(["a"]) == {"a": 0}
    log.append(rows(0, 1), offsets={"a": 5, "b": 1})
    log.append(rows(1, 1), offsets={"a": 7})
    assert log_in(tmp_path).offsets(["a", "b", "c"]) == {"a": 7, "b": 1, "c": 0}
    assert DeltaTable(log.folder).transaction_version("a") == 7


def _write(folder: Path, first: int) -> None:
    log = log_in(folder)
    for number in range(first, first + 100_000):
        log.append(rows(number, 1), key=str(number))
        with (folder / f"acknowledged-{first}").open("a") as file:
            file.write(f"{number}\n")


def _compact(folder: Path) -> None:
    while True:
        log_in(folder).compact()


@pytest.mark.parametrize("turns", [1, wide(3)])
def test_kill_9_of_writers_and_compactors_loses_nothing_and_doubles_nothing(tmp_path, turns):
    """What was acknowledged is there once; at most the one append under way is there beside it."""
    log_in(tmp_path).append(rows(999_999_999, 1))
    begun = []
    for turn in range(turns):
        begun += [turn * 1_000_000, turn * 1_000_000 + 500_000]
        workers = [CLEAN.Process(target=_write, args=(tmp_path, first)) for first in begun[-2:]]
        workers += [CLEAN.Process(target=_compact, args=(tmp_path,))]
        for worker in workers:
            worker.start()
        stop = time.monotonic() + 0.4
        while time.monotonic() < stop or not all((tmp_path / f"acknowledged-{one}").exists() for one in begun[-2:]):
            seen = ids(log_in(tmp_path).scan(columns=["id"]))
            assert len(seen) == len(set(seen))
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
    seen = set(ids(log_in(tmp_path).scan()))
    for first in begun:
        acknowledged = (tmp_path / f"acknowledged-{first}").read_text().split()
        assert acknowledged
        assert set(acknowledged) <= seen
        assert len([one for one in seen if first <= int(one) < first + 500_000]) <= len(acknowledged) + 1
    log_in(tmp_path).compact()
    assert sorted(ids(log_in(tmp_path).scan())) == sorted(seen)


def test_threads_of_one_process_append_side_by_side(tmp_path):
    log = log_in(tmp_path)
    threads = [
        threading.Thread(target=lambda n=n: [log.append(rows(n * 10 + i, 1)) for i in range(5)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.cursor() == 20
    assert len(set(ids(log.scan()))) == 20


def test_columns_whose_names_differ_only_in_case_stay_apart(tmp_path):
    """Delta refuses them; a client that sent `City` and `city` ended the compactor, at every start again."""
    log = log_in(tmp_path)
    both = {"raw.City": pa.array(["A"]), "raw.city": pa.array([1.0]), "raw.city~case2": pa.array(["no"])}
    for number, more in enumerate([{"raw.City": pa.array(["A"])}, both, {"raw.CITY": pa.array([True])}, {}] * 3):
        table = rows(number, 1)
        for name, column in more.items():
            table = table.append_column(name, column)
        log.append(table)
    columns = ["id", "raw.City", "raw.city", "raw.CITY"]
    first = [{"raw.City": "A"}, {"raw.City": "A", "raw.city": 1.0}, {"raw.CITY": True}, {}]
    before = concatenated([*log.scan(columns=columns)]).to_pylist()
    assert [{name: row[name] for name in columns[1:] if row[name] is not None} for row in before] == first * 3
    assert log.compact()
    again = log_in(tmp_path)
    assert concatenated([*again.scan(columns=columns)]).select(columns).to_pylist() == [
        {name: row[name] for name in columns} for row in before
    ]
    assert {*columns, "at", "value"} == set(next(again.in_time_order()).column_names)
    assert DeltaTable(log.folder).schema().to_arrow() is not None


def test_forgotten_rows_leave_the_files_that_were_merged_before_too(tmp_path):
    """Nothing else deletes these files while no rows come."""
    log = log_in(tmp_path)
    for number in range(8):
        log.append(rows(number, 1))
    assert log.compact() == 8
    assert log.forget(5_000_000_000) == 8
    assert not list(log.folder.glob("*.parquet"))


@pytest.mark.parametrize("first", [0, 1])
def test_an_integer_that_no_float_is_equal_to_makes_its_column_text(tmp_path, first):
    """Without it, the append failed at every repetition: a single value of a client stopped the log."""
    log = log_in(tmp_path)
    values = [[1.5], [2**53 + 1]]
    for number, value in enumerate([values[first], values[1 - first], [2]]):
        log.append(rows(number, 1).append_column("raw.x", pa.array(value)))
    expected = [*(str(value[0]) for value in (values[first], values[1 - first])), "2"]
    assert concatenated([*log_in(tmp_path).scan()]).column("raw.x").to_pylist() == expected
