"""Prepared rows are read a piece at a time, and an incomplete file is named with the cure."""

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from models.data.preparation import ROWS_FILE
from models.data.prepared_rows import rows_of
from models.errors import DataError


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


def test_a_column_that_the_rows_lack_is_an_error(run_prepare, make_spec, rows):
    folder, _ = run_prepare(rows, make_spec())
    with pytest.raises(DataError, match=r"rows\.parquet: not a whole Parquet file: remove"):
        rows_of(folder, "train", ["nothing"])
