"""Predictions joined with the labels that come days later, early, twice, corrected, or for nothing that is known."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from models.sources.row_batches import concatenated
from tasks.state import predictions
from tasks.state.predictions import joined, label_store, new_labels, prediction_log
from tests.wide import examples

FEEDBACK_GUIDE = Path(__file__).parents[4] / "docs" / "how-to" / "feedback.md"


def moments(seconds: list[float]) -> pa.Array:
    return pa.array([datetime.fromtimestamp(one, UTC) for one in seconds], pa.timestamp("us", tz="UTC"))


def predicted(state, ids, seconds, version="1") -> None:
    table = pa.table({"id": ids, "at": moments(seconds), "version": [version] * len(ids), "score": [0.5] * len(ids)})
    prediction_log(state).append(table)


def labelled(state, ids, labels, at=0.0) -> None:
    label_store(state).append(pa.table({"id": ids, "label": labels, "at": moments([at] * len(ids))}))


def pairs(tables) -> list[tuple[str, str | None]]:
    return [pair for one in tables for pair in zip(one["id"].to_pylist(), one["label"].to_pylist(), strict=True)]


def test_labels_are_joined_however_late_or_early_they_come_and_the_last_one_counts(tmp_path):
    labelled(tmp_path, ["early", "b"], ["x", "wrong"], at=1)
    predicted(tmp_path, ["b", "none", "early"], [30, 20, 10])
    labelled(tmp_path, ["b", "stranger"], ["y", "z"], at=99)
    assert pairs(joined(tmp_path)) == [("early", "x"), ("none", None), ("b", "y")]
    assert pairs(joined(tmp_path, labelled=True)) == [("early", "x"), ("b", "y")]
    (table,) = joined(tmp_path, labelled=True, columns=["score"])
    assert table.column_names == ["id", "at", "version", "score", "label", "labelled_at"]
    assert [one.timestamp() for one in table["labelled_at"].to_pylist()] == [1, 99]
    assert new_labels(tmp_path, 0) == 2
    predicted(tmp_path, ["stranger"], [40])
    assert new_labels(tmp_path, 0) == 3
    assert pairs(joined(tmp_path))[-1] == ("stranger", "z")


def test_nothing_is_there_before_anything_was_logged(tmp_path):
    assert list(joined(tmp_path)) == []
    assert new_labels(tmp_path, 0) == 0


def test_an_id_counts_once_a_version_the_first_time(tmp_path):
    predicted(tmp_path, ["a", "b"], [1, 2])
    predicted(tmp_path, ["a"], [3])
    predicted(tmp_path, ["a"], [4], version="2")
    labelled(tmp_path, ["a"], ["x"])
    found = concatenated(list(joined(tmp_path)))
    assert list(zip(found["id"].to_pylist(), found["version"].to_pylist(), strict=True)) == [
        ("a", "1"),
        ("b", "1"),
        ("a", "2"),
    ]
    assert pairs(joined(tmp_path, versions=["2"])) == [("a", "x")]


def test_the_last_label_to_come_counts_whatever_its_time_and_after_compaction_too(tmp_path):
    predicted(tmp_path, ["a"], [1])
    for number in range(20):
        labelled(tmp_path, ["a"], [str(number)], at=100 - number)
    assert pairs(joined(tmp_path)) == [("a", "19")]
    assert label_store(tmp_path).compact() == 20
    assert pairs(joined(tmp_path)) == [("a", "19")]


def test_new_labels_are_those_of_known_predictions_that_came_since(tmp_path):
    predicted(tmp_path, ["a", "b", "c"], [1, 2, 3])
    labelled(tmp_path, ["a"], ["x"], at=10)
    labelled(tmp_path, ["b", "stranger"], ["x", "y"], at=20)
    labelled(tmp_path, ["b"], ["z"], at=30)
    assert new_labels(tmp_path, 0) == 2
    assert new_labels(tmp_path, 15) == 1
    assert new_labels(tmp_path, 31) == 0


@examples(15)
@given(
    events=st.lists(
        st.tuples(st.sampled_from(["predict", "label"]), st.integers(0, 8), st.integers(0, 20)), max_size=40
    ),
    compacted=st.booleans(),
)
def test_the_join_is_what_a_dictionary_would_say(tmp_path_factory, events, compacted):
    state = tmp_path_factory.mktemp("state")
    last: dict[str, str] = {}
    first: dict[str, int] = {}
    for number, (kind, name, moment) in enumerate(events):
        if kind == "predict":
            predicted(state, [str(name)], [moment])
            first[str(name)] = min(moment, first.get(str(name), moment))
        else:
            labelled(state, [str(name)], [f"label {number}"], at=moment)
            last[str(name)] = f"label {number}"
    if compacted:
        prediction_log(state).compact()
        label_store(state).compact()
    found = pairs(joined(state))
    assert dict(found) == {name: last.get(name) for name in first}
    assert len(found) == len(first)
    assert [first[name] for name, _ in found] == sorted(first.values())
    assert new_labels(state, 0) == len(set(last) & set(first))


def test_many_small_blocks_remember_what_was_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "_BLOCK_ROWS", 7)
    for turn in range(3):
        predicted(tmp_path, [str(n) for n in range(50)], [turn * 50 + n for n in range(50)])
    labelled(tmp_path, [str(n) for n in range(0, 50, 2)], ["x"] * 25)
    found = pairs(joined(tmp_path))
    assert [name for name, _ in found] == [str(n) for n in range(50)]
    assert [label for _, label in found] == ["x", None] * 25


def test_the_query_of_the_guide_joins_alike(tmp_path):
    import duckdb
    from deltalake import DeltaTable

    (query,) = re.findall(r'duckdb\.sql\("""\n(.*?)"""\)', FEEDBACK_GUIDE.read_text(), re.DOTALL)
    labelled(tmp_path, ["early", "b"], ["x", "wrong"], at=9)
    predicted(tmp_path, ["b", "none", "early"], [30, 20, 10])
    predicted(tmp_path, ["b"], [40])
    predicted(tmp_path, ["b"], [50], version="2")
    labelled(tmp_path, ["b", "stranger"], ["y", "z"], at=1)
    with duckdb.connect() as connection:
        for name in ("predictions", "labels"):
            connection.register(name, DeltaTable(tmp_path / name).to_pyarrow_dataset())
        table = connection.sql(query).to_arrow_table()
    (expected,) = joined(tmp_path, labelled=True)
    columns = ["id", "version", "at", "score", "label"]
    assert table.select(columns).to_pylist() == expected.select(columns).to_pylist()
