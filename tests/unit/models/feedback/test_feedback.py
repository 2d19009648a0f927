"""Labelled predictions as rows of the raw table: of the source's types, told apart beside it, none of them twice."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from models.errors import DataError
from models.feedback.feedback import with_feedback
from models.project_spec.blocks import Data

WHEN = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
SOURCE = pa.table(
    {
        "x": [1.0, 2.0],
        "hour": pa.array([5, 6], pa.int64()),
        "city": ["Graz", None],
        "open": [True, False],
        "tag": ["a", "b"],
        "y": ["yes", "no"],
    }
)


def labelled(columns: dict, labels: list[str], ids: list[str] | None = None) -> pa.Table:
    count = len(labels)
    return pa.table(
        {
            "id": ids or [f"p{n}" for n in range(count)],
            "at": pa.array([WHEN] * count, pa.timestamp("us", tz="UTC")),
            "version": ["3"] * count,
            **columns,
            "label": labels,
            "labelled_at": pa.array([WHEN] * count, pa.timestamp("us", tz="UTC")),
            "by": ["Ada"] * count,
        }
    )


def data(**other: object) -> Data:
    return Data.model_validate({"source": "a.csv", "target": "y", **other})


def test_rows_get_the_sources_columns_and_types():
    rows = labelled(
        {
            "input.x": [7.0, float("nan")],
            "input.hour": ["8", ""],
            "input.city": ["", "Wien"],
            "input.open": ["true", ""],
        },
        ["yes", "no"],
    )
    found = with_feedback(SOURCE, rows, data())
    assert found.table.schema == SOURCE.schema
    assert found.table.slice(0, 2).equals(SOURCE)
    assert found.table.slice(2).to_pylist() == [
        {"x": 7.0, "hour": 8, "city": None, "open": True, "tag": None, "y": "yes"},
        {"x": None, "hour": None, "city": "Wien", "open": None, "tag": None, "y": "no"},
    ]
    assert found.origin.to_pylist()[1] == {
        "row": 3, "id": "p1", "version": "3", "predicted_at": WHEN, "labelled_at": WHEN, "labelled_by": "Ada"
    }  # fmt: skip
    assert (found.known, found.unfit) == (0, 0)


def test_what_was_given_raw_wins_over_what_the_graph_saw():
    rows = labelled({"input.x": [0.5, 0.6], "raw.x": [7.0, None]}, ["yes", "no"])
    assert with_feedback(SOURCE, rows, data()).table.column("x").to_pylist() == [1.0, 2.0, 7.0, 0.6]


def test_a_row_that_the_source_has_by_its_id_is_left_out():
    source = SOURCE.append_column("key", pa.array(["p0", "q"]))
    rows = labelled({"input.x": [1.5, 2.0]}, ["yes", "no"])
    found = with_feedback(source, rows, data(id="key"))
    assert (found.known, found.origin.column("id").to_pylist()) == (1, ["p1"])
    assert found.table.column("key").to_pylist() == ["p0", "q", "p1"]
    numbered = SOURCE.append_column("key", pa.array([7, 8]))
    found = with_feedback(numbered, rows, data(id="key"))
    assert (found.known, found.unfit, found.table.column("key").to_pylist()) == (0, 0, [7, 8, None, None])


def test_an_id_with_leading_zeros_is_that_of_the_source():
    rows = labelled({"input.x": [1.5, 2.0, 2.5]}, ["yes", "no", "no"], ["00007", "9", "09"])
    numbers = SOURCE.append_column("key", pa.array([7, 8]))
    found = with_feedback(numbers, rows, data(id="key"))
    assert (found.known, found.table.column("key").to_pylist()) == (1, [7, 8, 9, None])
    texts = SOURCE.append_column("key", pa.array(["00007", "8"]))
    found = with_feedback(texts, rows, data(id="key"))
    assert (found.known, found.table.column("key").to_pylist()) == (1, ["00007", "8", "9", "09"])


def test_rows_that_hold_what_the_source_holds_are_rows_of_their_own():
    rows = labelled({"input.x": [1.0] * 300, "input.hour": [5.0] * 300}, ["yes"] * 300)
    found = with_feedback(SOURCE, rows, data())
    assert (found.known, found.origin.num_rows) == (0, 300)


def test_values_that_do_not_fit_leave_their_row_out():
    rows = labelled({"raw.hour": ["9", "late", "10"]}, ["yes", "yes", "no"])
    found = with_feedback(SOURCE, rows, data())
    assert found.unfit == 1
    assert found.table.column("hour").to_pylist() == [5, 6, 9, 10]


@pytest.mark.parametrize("hours", [[9.0, 10.5], ["9", "10.5"]], ids=["numbers", "text"])
def test_a_column_of_whole_numbers_takes_decimals_that_callers_sent(hours):
    found = with_feedback(SOURCE, labelled({"input.hour": hours}, ["yes", "no"]), data())
    assert (found.unfit, found.table.column("hour").to_pylist()) == (0, [5.0, 6.0, 9.0, 10.5])
    whole = with_feedback(SOURCE, labelled({"input.hour": [9.0, float("nan")]}, ["yes", "no"]), data())
    assert whole.table.schema.field("hour").type == pa.int64()


def test_whole_numbers_that_no_decimal_holds_stay_as_they_are():
    source = SOURCE.set_column(1, "hour", pa.array([2**60, 2**60 + 1]))
    joined = with_feedback(source, labelled({"input.hour": [1.5, 7.0]}, ["yes", "no"]), data())
    assert joined.unfit == 1
    assert joined.table.column("hour").to_pylist() == [2**60, 2**60 + 1, 7]


def test_a_row_without_its_time_has_that_of_its_prediction():
    times = pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)], pa.timestamp("ns"))
    source = SOURCE.append_column("when", times)
    split = {"by": "time", "column": "when"}
    found = with_feedback(source, labelled({"input.x": [9.0]}, ["yes"]), data(split=split))
    assert found.table.column("when").to_pylist()[2].to_pydatetime() == WHEN.replace(tzinfo=None)
    own = labelled({"input.x": [9.0], "raw.when": ["2026-03-01 00:00:00"]}, ["yes"])
    assert with_feedback(source, own, data(split=split)).table.column("when").to_pylist()[2].month == 3


def test_times_that_the_log_has_in_seconds_are_of_the_sources_type_again():
    seconds, noon = labelled({"input.when": [WHEN.timestamp(), float("nan")]}, ["yes", "no"]), WHEN.replace(tzinfo=None)
    kinds = {"features": {"kinds": {"when": "datetime"}}}
    for kind, expected in (
        (pa.timestamp("ns"), noon),
        (pa.timestamp("s", "UTC"), WHEN),
        (pa.date32(), noon.date()),
        (pa.string(), "2026-05-01T12:30:00.000000"),
        (pa.int64(), int(WHEN.timestamp())),
    ):
        source = SOURCE.append_column("when", pa.nulls(2, kind))
        joined = with_feedback(source, seconds, data(**kinds))
        assert joined.table.column("when").to_pylist()[2:] == [expected, None]


def test_a_row_that_the_split_cannot_place_is_left_out():
    found = with_feedback(SOURCE, labelled({"input.x": [9.0]}, ["yes"]), data(split={"by": "group", "column": "tag"}))
    assert (found.table.num_rows, found.unfit) == (2, 1)


def test_rows_of_another_project_are_refused():
    with pytest.raises(DataError, match=r"no column of the source, which has x, hour.*retrain\.feedback: false"):
        with_feedback(SOURCE, labelled({"input.weight": [1.0]}, ["yes"]), data())
