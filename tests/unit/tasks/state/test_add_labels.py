"""Labels come in once, by one way: new ones, the same again, corrections, and of one id several at a time."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tasks.state.add_labels import take_in
from tasks.state.predictions import label_store, prediction_log

TIME = pa.timestamp("us", tz="UTC")


def labels(*rows: tuple[str, str, int]) -> pa.Table:
    at = [datetime.fromtimestamp(second, UTC) for _, _, second in rows]
    columns = {"id": [one for one, _, _ in rows], "label": [label for _, label, _ in rows]}
    return pa.table({**columns, "at": pa.array(at, TIME), "by": ["Ada"] * len(rows)})


def kept(state) -> list[tuple[str, str]]:
    return [(row["id"], row["label"]) for table in label_store(state).scan() for row in table.to_pylist()]


def test_of_ids_that_are_each_there_once(tmp_path):
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], TIME)
    prediction_log(tmp_path).append(pa.table({"id": ["a"], "at": at}))
    told = take_in(tmp_path, labels(("a", "yes", 1), ("b", "no", 1)))
    assert told == {"taken": 2, "corrected": 0, "repeated": 0, "waiting": 1}
    told = take_in(tmp_path, labels(("a", "no", 2), ("b", "no", 2)))
    assert told == {"taken": 1, "corrected": 1, "repeated": 1, "waiting": 0}
    assert kept(tmp_path) == [("a", "yes"), ("b", "no"), ("a", "no")]


def test_of_one_id_several_at_a_time_in_the_order_they_came(tmp_path):
    given = labels(("a", "x", 1), ("a", "x", 2), ("a", "y", 3), ("b", "x", 3), ("a", "x", 4))
    assert take_in(tmp_path, given) == {"taken": 4, "corrected": 2, "repeated": 1, "waiting": 2}
    assert kept(tmp_path) == [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")]


@pytest.mark.parametrize("given", [[("a", "x", 1), ("a", "y", 2), ("a", "x", 3)], [("a", "x", 1)], [("a", "y", 2)]])
def test_the_same_again_and_what_is_older_than_what_is_known_add_nothing(tmp_path, given):
    take_in(tmp_path, labels(("a", "x", 1), ("a", "y", 2), ("a", "x", 3)))
    before = kept(tmp_path)
    assert take_in(tmp_path, labels(*given))["taken"] == 0
    assert kept(tmp_path) == before


def test_none_are_none(tmp_path):
    assert take_in(tmp_path, labels()) == {"taken": 0, "corrected": 0, "repeated": 0, "waiting": 0}
