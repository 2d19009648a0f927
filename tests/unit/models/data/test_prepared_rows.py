"""Prepared rows are read a piece at a time, and an incomplete file is named with the cure."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from models.data.preparation import ROWS_FILE
from models.data.prepared_rows import column_of, rows_of, split_batches, spread_rows
from models.errors import DataError
from models.scratch import arrays_in


def test_the_three_splits_hold_every_row_once(run_prepare, make_spec, rows):
    folder, _ = run_prepare(rows, make_spec())
    found = [rows_of(folder, split).column("__row").to_numpy() for split in ("train", "validation", "test")]
    assert sorted(np.concatenate(found).tolist()) == list(range(200))


def test_rows_at_positions_are_those_of_the_whole_wherever_a_piece_of_the_file_ends(
    run_prepare, make_spec, rows, monkeypatch
):
    folder, made = run_prepare(rows, make_spec())
    table = pq.read_table(folder / ROWS_FILE)
    whole = table.filter(pc.equal(table.column("__split"), 0))
    at = np.array([0, 1, 40, made.rows["train"] - 1])
    for piece in (1, 7, 1000):
        monkeypatch.setattr("models.data.prepared_rows._PIECE_ROWS", piece)
        assert str(rows_of(folder, "train").to_pydict()) == str(whole.to_pydict()), "also with numbers that are missing"
        assert rows_of(folder, "train", ["__row"], at).equals(whole.select(["__row"]).take(at))
        assert rows_of(folder, "train", positions=at[:0]).equals(whole.slice(0, 0))


def test_rows_of_a_file_are_those_of_memory_and_batches_have_their_size(run_prepare, make_spec, rows, monkeypatch):
    folder, made = run_prepare(rows, make_spec())
    whole = rows_of(folder, "train")
    monkeypatch.setattr("models.data.prepared_rows._PIECE_ROWS", 7)
    batches = [*split_batches(folder, "train", whole.column_names, 50)]
    assert [len(batch) for batch in batches][:-1] == [50] * (made.rows["train"] // 50)
    assert str(pa.concat_tables(batches).to_pydict()) == str(whole.to_pydict())
    monkeypatch.setattr("models.scratch.PART", 20)
    with arrays_in(folder, large=1):
        assert str(rows_of(folder, "train").to_pydict()) == str(whole.to_pydict())
        assert column_of(folder, "train", "__row").tolist() == whole.column("__row").to_pylist()
    spread = spread_rows(folder / ROWS_FILE, ["__row"], 50).column(0)
    assert spread.to_pylist() == pq.read_table(folder / ROWS_FILE).column("__row").to_pylist()[::4]


def test_a_column_that_the_rows_lack_is_an_error(run_prepare, make_spec, rows):
    folder, _ = run_prepare(rows, make_spec())
    with pytest.raises(DataError, match=r"rows\.parquet: not a whole Parquet file: remove"):
        rows_of(folder, "train", ["nothing"])
