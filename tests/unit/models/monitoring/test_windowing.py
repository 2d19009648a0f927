import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from models.identity.hashing import SortedHashSet
from models.monitoring.windowing import OpenWindow, WindowingRules, fill
from tests.unit.models.monitoring.conftest import logged, reference, rows
from tests.wide import examples

HOUR_US = 3_600_000_000
RULES = WindowingRules("binary", reference(), {})


def log(num: int, first: int = 0) -> pa.Table:
    """Rows with ids and a time each, ten minutes apart."""
    at = pa.array([(first + place) * HOUR_US // 6 for place in range(num)], pa.timestamp("us", tz="UTC"))
    table = logged(rows(num, seed=first)).append_column("at", [at])
    return table.append_column("id", [[str(first + place) for place in range(num)]])


def windows_of(tables: list[pa.Table], size: int = 50) -> list[OpenWindow]:
    seen, found = SortedHashSet(), {}
    last = OpenWindow(0, size)
    for table in tables:
        for changed in fill(last, table, seen, size, RULES):
            found[changed.first] = last = changed
    return list(found.values())


@examples(15)
@given(st.lists(st.integers(0, 130), max_size=4))
def test_windows_do_not_depend_on_how_the_log_is_cut(cuts: list[int]) -> None:
    whole = log(130)
    ends = sorted([0, *cuts, 130])
    parts = [whole.slice(begin, end - begin) for begin, end in itertools.pairwise(ends)]
    found = windows_of(parts)
    assert [(one.first, one.num_rows, one.is_whole) for one in found] == [
        (0, 50, True),
        (50, 50, True),
        (100, 30, False),
    ]
    at_once = windows_of([whole])
    for one, other in zip(found, at_once, strict=True):
        assert (one.begin, one.end) == (other.begin, other.end)
        assert (one.examples.keys == other.examples.keys).all()
        assert all((one.tally.counts[name] == other.tally.counts[name]).all() for name in other.tally.counts)


def test_counts_are_kept_hour_by_hour() -> None:
    (first, *_) = windows_of([log(130)])
    assert {hour: part.num_rows for hour, part in first.hours.items()} == {**dict.fromkeys(range(8), 6), 8: 2}
    assert first.tally.num_rows == 50


def test_what_comes_twice_counts_once() -> None:
    assert sum(one.num_rows for one in windows_of([log(30), log(30), log(60)])) == 60


def test_a_changed_length_holds_from_the_next_window_on() -> None:
    seen = SortedHashSet()
    (first,) = fill(OpenWindow(0, 50), log(20), seen, 50, RULES)
    found = {one.first: one.num_rows for one in fill(first, log(100, first=20), seen, 40, RULES)}
    assert found == {0: 50, 50: 40, 90: 30}


def test_of_an_unknown_version_rows_alone_are_counted() -> None:
    (found,) = fill(OpenWindow(0, 50), log(20), SortedHashSet(), 50, WindowingRules())
    assert (found.num_rows, dict(found.tally.counts), len(found.examples.keys)) == (20, {}, 0)


def test_a_version_without_reference_keeps_its_examples() -> None:
    (found,) = fill(OpenWindow(0, 50), log(20), SortedHashSet(), 50, WindowingRules("binary"))
    assert len(found.examples.keys) == 20
    assert np.isfinite(found.examples.prediction).all()
