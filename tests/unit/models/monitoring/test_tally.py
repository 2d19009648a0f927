import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.monitoring.tally import PredictionCounts, predictions_of, tally
from tests.unit.models.monitoring.conftest import logged, reference, rows
from tests.wide import examples

TABLE = logged(rows(300, nulls=0.1))
BOUNDS = {"wind": (-1.0, 1.0), "gust": (None, 2.0)}


def same(first: PredictionCounts, second: PredictionCounts) -> bool:
    assert first.counts.keys() == second.counts.keys()
    counts = all((first.counts[name] == second.counts[name]).all() for name in first.counts)
    return counts and first.broken == second.broken and first.num_rows == second.num_rows


@examples(25)
@given(st.lists(st.integers(0, 300), max_size=4))
def test_merging_parts_is_counting_at_once_and_associative(cuts: list[int]) -> None:
    ends = sorted([0, *cuts, 300])
    parts = [
        tally(TABLE.slice(begin, end - begin), reference(), BOUNDS)
        for begin, end in itertools.pairwise(ends)
        if end > begin
    ]
    whole = tally(TABLE, reference(), BOUNDS)
    assert same(sum(parts, PredictionCounts()), whole)
    if len(parts) > 2:
        assert same(parts[0] + (parts[1] + parts[2]), (parts[0] + parts[1]) + parts[2])


def test_a_tally_is_written_as_numbers_and_read_back() -> None:
    made = tally(TABLE, reference(), BOUNDS)
    assert same(PredictionCounts.from_bytes(made.to_bytes()), made)
    assert same(PredictionCounts.from_bytes(PredictionCounts(3).to_bytes()), PredictionCounts(3))


def test_what_lies_outside_the_bounds_is_counted() -> None:
    wind, gust = (TABLE.column(f"input.{name}").to_numpy() for name in ("wind", "gust"))
    found = tally(TABLE, reference(), BOUNDS)
    assert found.broken == {"input.wind": (np.abs(wind) > 1).sum(), "input.gust": (gust > 2).sum()}


def test_a_column_that_the_log_lacks_is_missing_in_every_row() -> None:
    found = tally(TABLE.drop_columns(["input.wind"]), reference())
    wind = reference().columns[0].bins
    assert wind.num_missing(found.counts["input.wind"]) == 300


def test_predictions_of_many_classes_are_a_matrix() -> None:
    table = pa.table({"scores": [[0.2, 0.8], [0.5, 0.5]]})
    assert predictions_of(table, "multiclass").tolist() == [[0.2, 0.8], [0.5, 0.5]]
    assert predictions_of(table.slice(1), "multiclass").tolist() == [[0.5, 0.5]]
    assert predictions_of(pa.table({"score": [0.5, None]}), "binary") == pytest.approx([0.5, np.nan], nan_ok=True)
