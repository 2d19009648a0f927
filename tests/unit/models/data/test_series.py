"""Series: order, frequency, gaps, and the examples that windows cut."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from models.data.series import SeriesRows, example_splits, first_target, series_rows, window_ends, with_horizons
from models.errors import DataError
from models.project_spec.blocks import Data
from models.project_spec.window import Window


def rows(times: object, key: list[str] | None = None, **window: object) -> SeriesRows:
    """The ordered rows of a table with these times and, if there is a key, of these series."""
    table = pa.table({"t": times, "y": np.arange(float(len(times)))})  # type: ignore[arg-type]
    if key is not None:
        table, window["series_key"] = table.append_column("shop", pa.array(key)), "shop"
    return series_rows(table, Window.model_validate({"length": 2, **window}), "t")


def test_rows_are_put_in_the_order_of_series_and_time():
    ordered = rows([3, 1, 2, 1, 2], ["b", "b", "a", "a", "b"])
    assert ordered.positions.tolist() == [3, 2, 1, 4, 0]
    assert ordered.series.tolist() == [0, 0, 1, 1, 1]
    assert ordered.steps.tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ([10, 20, 30, 50, 60], "10"),
        ([0.5, 1.0, 1.5, 2.0], "0.5"),
        (pd.date_range("2024-01-01", periods=30, freq="30min"), "30 minutes"),
        (pd.date_range("2024-01-01", periods=30, freq="h"), "hour"),
        (pd.date_range("2024-01-01", periods=30, freq="D"), "day"),
        (pd.date_range("2024-01-01", periods=30, freq="B"), "weekday"),
        (pd.date_range("2024-01-01", periods=30, freq="W"), "week"),
        (pd.date_range("2024-01-31", periods=30, freq="ME"), "month"),
        (pd.date_range("2024-01-01", periods=30, freq="MS"), "month"),
        (pd.date_range("2024-02-15", periods=9, freq="QS"), "quarter"),
        (pd.date_range("2001-01-01", periods=9, freq="YS"), "year"),
        (["2024-01-01 00:00", "2024-01-01 06:00", "2024-01-01 12:00"], "6 hours"),
    ],
)
def test_the_frequency_is_inferred(times, text):
    assert rows(times, gaps="break").frequency.text == text


def test_a_gap_is_refused_with_what_can_be_done():
    with pytest.raises(DataError, match=r"4 steps are missing in 2 gaps \(frequency 1\), first after 2, .*gaps: break"):
        rows([1, 2, 5, 6, 9, 10])
    with pytest.raises(DataError, match=r"first after 2 of shop 'b'"):
        rows([1, 2, 3, 1, 2, 4], ["a", "a", "a", "b", "b", "b"])


def test_no_window_spans_a_gap_that_breaks_the_series():
    ordered = rows([1, 2, 3, 5, 6, 7], gaps="break")
    assert ordered.steps.tolist() == [0, 1, 2, 0, 1, 2]
    assert ordered.num_gaps == 1
    assert window_ends(ordered, 2).tolist() == [1, 2, 4, 5]
    with pytest.raises(DataError, match="the longest stretch without a gap has 3 steps, expected at least 4"):
        window_ends(ordered, 4)


def test_missing_steps_are_inserted_without_values():
    days = pd.to_datetime(["2024-03-01", "2024-03-02", "2024-03-05", "2024-03-01", "2024-03-03"])
    ordered = rows(days, ["a", "a", "a", "b", "b"], gaps="fill")
    assert ordered.num_inserted == 3
    assert ordered.positions.tolist() == [0, 1, -1, -2, 2, 3, -3, 4]
    assert ordered.steps.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert [day.day for day in ordered.table.column("t").to_pylist()] == [1, 2, 3, 4, 5, 1, 2, 3]
    assert ordered.table.column("y").to_pylist() == [0, 1, None, None, 2, 3, None, 4]
    assert ordered.table.column("shop").to_pylist() == [*"aaaaabbb"]


@pytest.mark.parametrize(
    ("times", "frequency", "days"),
    [
        (["2024-01-31", "2024-04-30"], "month", ["2024-01-31", "2024-02-28", "2024-03-28", "2024-04-30"]),
        (["2024-01-05", "2024-01-09"], "weekday", ["2024-01-05", "2024-01-08", "2024-01-09"]),
        (["2024-01-05", "2024-01-26"], "week", ["2024-01-05", "2024-01-12", "2024-01-19", "2024-01-26"]),
    ],
)
def test_inserted_steps_have_times_of_the_calendar(times, frequency, days):
    ordered = rows(pd.to_datetime(times), frequency=frequency, gaps="fill")
    assert [f"{day:%Y-%m-%d}" for day in ordered.table.column("t").to_pylist()] == days


@pytest.mark.parametrize(
    ("times", "window", "says"),
    [
        ([1, 2, 2], {}, "1 rows share their time with another, first 2, .*data.window.series_key"),
        ([1.0, 2.0, 3.5, 4.5], {}, r"3.5 is no whole number of steps \(frequency 1\) after 2"),
        (["2024-01-01", "2024-01-20", "2024-02-20"], {"frequency": "month"}, "no whole number of steps"),
        (["2024-01-05", "2024-01-06"], {"frequency": "weekday"}, "no whole number of steps"),
        ([1, 2, 3], {"frequency": "day"}, "got day, but the times in 't' are numbers"),
        (["2024-01-01", "2024-01-02"], {"frequency": "1"}, "got 1, but the times in 't' are dates"),
        ([1, None, 3], {}, "1 rows have no time"),
    ],
)
def test_times_that_make_no_steps_are_refused(times, window, says):
    with pytest.raises(DataError, match=says):
        rows(times, **window)


def test_rows_may_be_steps_whatever_their_times():
    assert rows([1, 2, 7, 9], frequency="rows").steps.tolist() == [0, 1, 2, 3]


def test_an_example_needs_a_whole_window_a_target_and_its_place_on_the_stride(series_spec):
    data = series_spec(stride=3).data
    assert data.window is not None
    assert first_target(data.window) == 6
    values = np.arange(20.0)
    values[9] = np.nan
    codes = example_splits(np.zeros(20, dtype=np.int8), np.arange(20), pa.table({"y": values}), data)
    assert np.flatnonzero(codes == 0).tolist() == [6, 12, 15, 18]


def test_a_series_shorter_than_a_window_is_refused(series_spec):
    with pytest.raises(DataError, match=r"one example spans 7 steps.*the longest stretch without a gap has 6"):
        example_splits(np.zeros(6, dtype=np.int8), np.arange(6), pa.table({"y": np.arange(6.0)}), series_spec().data)


def test_targets_at_several_horizons_are_all_there_and_of_one_split():
    window = {"length": 2, "horizon": [1, 2, 3]}
    ordered = rows(np.arange(14), gaps="break", **window)
    values = pa.array([None if row == 6 else float(row) for row in range(14)])
    table = ordered.table.set_column(1, "y", values)
    data = Data.model_validate(
        {"source": "x.csv", "target": "y", "kind": "series", "window": window, "split": {"by": "time", "column": "t"}}
    )
    codes = np.array([0] * 10 + [1] * 4, dtype=np.int8)
    assert example_splits(codes, ordered.steps, table, data).tolist() == [-1] * 4 + [0, 0] + [-1] * 3 + [
        0,
        -1,
        -1,
        1,
        1,
    ]
    made = with_horizons(table, ordered.steps, Window.model_validate(window), "y")
    assert [made.column(f"h{ahead}")[9].as_py() for ahead in (1, 2, 3)] == [7, 8, 9]
    with pytest.raises(DataError, match=r"the predictions are named h1 and so on, and so is a column of the data"):
        with_horizons(made, ordered.steps, Window.model_validate(window), "y")


def test_no_true_value_is_of_another_series():
    ordered = rows([1, 2, 1, 2], ["a", "a", "b", "b"], horizon=[1, 2])
    made = with_horizons(ordered.table, ordered.steps, Window(length=2, horizon=[1, 2]), "y")
    assert made.column("h2").to_pylist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(made.column("h1").to_numpy(), [np.nan, 0, np.nan, 2])
