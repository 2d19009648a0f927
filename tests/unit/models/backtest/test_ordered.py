"""Rows in the order in which they came, whatever order they stand in, and a digest of any stretch of them."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from models.backtest.ordered import in_time_order
from models.backtest.periods import PeriodRule, RowRange
from models.errors import DataError, UsageError
from models.project_spec.blocks import Data

MONTH = PeriodRule("month")


def data(**more: object) -> Data:
    split = more.pop("split", {"by": "time", "column": "t"})
    return Data.model_validate({"source": "x.csv", "target": "y", "split": split, **more})


def table(days: list[int], **columns: list[object]) -> pa.Table:
    first = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    times = [(first + datetime.timedelta(days=day)).replace(tzinfo=None) for day in days]
    return pa.table({"t": times, "y": [float(day) for day in days], **columns})


def test_rows_are_put_in_the_order_of_their_time():
    past = in_time_order(table([5, 1, 3]), data(), MONTH, 60.0)
    assert past.table["y"].to_pylist() == [1.0, 3.0, 5.0]
    assert np.diff(past.clock.times).tolist() == [2 * 86_400.0] * 2
    assert past.clock.delay_s == 60.0


def test_text_dates_are_dates():
    past = in_time_order(pa.table({"t": ["2020-03-02", "2020-01-02"], "y": [1.0, 2.0]}), data(), MONTH)
    assert past.clock.has_calendar
    assert past.table["y"].to_pylist() == [2.0, 1.0]


def test_rows_without_a_label_are_left_out_and_told():
    past = in_time_order(table([1, 2, 3]).set_column(1, "y", pa.array([1.0, None, 2.0])), data(), MONTH)
    assert past.table.num_rows == 2
    assert past.notes == ["1 rows without a label were left out"]


def test_the_order_of_the_rows_is_a_clock_of_its_own():
    past = in_time_order(table([5, 1, 3]), data(split={"by": "position"}), PeriodRule(rows=2))
    assert past.table["y"].to_pylist() == [5.0, 1.0, 3.0]
    assert not past.clock.has_calendar
    assert past.notes == ["the rows have an order but no dates: 2 rows count for 30 days"]
    with pytest.raises(UsageError, match="--label-delay"):
        in_time_order(table([5, 1, 3]), data(split={"by": "position"}), PeriodRule(rows=2), 60.0)


def test_a_number_is_no_date():
    plain = pa.table({"t": [3, 1, 2], "y": [3.0, 1.0, 2.0]})
    assert in_time_order(plain, data(), PeriodRule(rows=1)).table["y"].to_pylist() == [1.0, 2.0, 3.0]
    with pytest.raises(UsageError, match="the rows have no dates"):
        in_time_order(plain, data(), MONTH)


def test_rows_without_any_order_are_refused_with_the_cure():
    with pytest.raises(UsageError, match=r"data\.split\.by is random.*-s data\.split\.by=time"):
        in_time_order(table([1, 2]), data(split={"by": "random"}), MONTH)


def test_a_time_that_is_missing_is_named():
    with pytest.raises(DataError, match="1 rows have no time"):
        in_time_order(pa.table({"t": ["2020-01-01", None], "y": [1.0, 2.0]}), data(), MONTH)
    with pytest.raises(DataError, match=r"data\.split\.column: no column 't'"):
        in_time_order(pa.table({"y": [1.0, 2.0]}), data(), MONTH)


def test_a_text_is_refused():
    with pytest.raises(UsageError, match="replays tables, images and series"):
        in_time_order(pa.table({"text": ["a"]}), Data.model_validate({"source": "x", "kind": "text"}), MONTH)


def test_a_digest_tells_values_order_and_types_and_nothing_that_came_later():
    past = in_time_order(table([1, 2, 3, 4]), data(), MONTH)
    longer = in_time_order(table([1, 2, 3, 4, 5, 6]), data(), MONTH)
    assert past.digest(RowRange(0, 3)) == longer.digest(RowRange(0, 3))
    assert past.digest(RowRange(0, 3)) != past.digest(RowRange(0, 4))
    assert past.digest(RowRange(0, 3)) != past.digest(RowRange(1, 4))
    changed = table([1, 2, 3, 4]).set_column(1, "y", pa.array([1.0, 2.0, 9.0, 4.0]))
    assert in_time_order(changed, data(), MONTH).digest(RowRange(0, 3)) != past.digest(RowRange(0, 3))
    assert in_time_order(changed, data(), MONTH).digest(RowRange(0, 2)) == past.digest(RowRange(0, 2))
    retyped = table([1, 2, 3, 4]).set_column(1, "y", pa.array([1, 2, 3, 4]))
    assert in_time_order(retyped, data(), MONTH).digest(RowRange(0, 3)) != past.digest(RowRange(0, 3))
