"""Periods and the data's clock: nothing is known before it came, and no row of one moment stands on two sides."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.backtest.periods import (
    MONTH_S,
    LabelClock,
    PeriodRule,
    RowRange,
    cut_periods,
    in_time_order,
    iso,
    num_training,
    parse_cut,
    parse_date,
    parse_delay,
    positions_as_times,
    without_stub,
)
from models.errors import DataError, UsageError
from models.project_spec.blocks import Data

TIMES = st.lists(st.integers(0, 10**9), min_size=1, max_size=60).map(lambda given: np.sort(np.array(given, float)))
CUTS = st.sampled_from(
    [PeriodRule("day"), PeriodRule("week"), PeriodRule("month"), PeriodRule(rows=1), PeriodRule(rows=7)]
)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("month", PeriodRule("month")),
        ("Weekly", PeriodRule("week")),
        ("days", PeriodRule("day")),
        ("5_000 rows", PeriodRule(rows=5000)),
        ("12", PeriodRule(rows=12)),
    ],
)
def test_a_cut_is_read(text: str, cut: PeriodRule):
    assert parse_cut(text) == cut


@pytest.mark.parametrize("text", ["fortnight", "", "0 rows", "-3", "5000 columns"])
def test_no_cut_is_refused_with_what_was_expected(text: str):
    with pytest.raises(UsageError, match=r"--period: got .* expected month, week, day or a number of rows"):
        parse_cut(text)


def test_delays_and_dates():
    assert [parse_delay(text) for text in ("0", "12h", "7d", "2w", "90 s")] == [0, 43_200, 604_800, 1_209_600, 90]
    assert [parse_delay(text) for text in ("30m", "2 Minutes", "1 day", "3 weeks")] == [1800, 120, 86_400, 1_814_400]
    for months in ("3 months", "1 month", "3mo", "3M", "1 year"):
        with pytest.raises(UsageError, match="months differ in length: say them in days"):
            parse_delay(months)
    assert parse_date("1970-01-02") == 86_400
    assert iso(parse_date("2013-03-01")) == "2013-03-01"
    assert iso(parse_date("2013-03-01T06:30")) == "2013-03-01 06:30"
    with pytest.raises(UsageError, match="--label-delay: got '7', expected a number and a unit"):
        parse_delay("7")
    with pytest.raises(UsageError, match="--from: got 'March', expected a date"):
        parse_date("March")


def test_months_are_those_of_the_calendar():
    begin = parse_date("2013-01-15")
    clock = LabelClock(begin + np.arange(0, 75) * 86_400.0)
    assert [(p.name, p.num_rows) for p in cut_periods(clock, PeriodRule("month"))] == [
        ("2013-01", 17), ("2013-02", 28), ("2013-03", 30)
    ]  # fmt: skip
    assert cut_periods(clock, PeriodRule("week"))[0].name == "2013-W03"


@given(times=TIMES, cut=CUTS)
def test_periods_hold_every_row_once_and_end_after_their_rows(times: np.ndarray, cut: PeriodRule):
    clock = LabelClock(times)
    periods = cut_periods(clock, cut)
    assert [period.first for period in periods] == [0, *(period.stop for period in periods[:-1])]
    assert periods[-1].stop == len(times)
    for period in periods:
        assert period.num_rows > 0
        assert period.begin <= times[period.first] <= times[period.stop - 1] < period.end
        assert clock.labelled(period.end) == period.stop


@given(times=TIMES, delay=st.floats(0, 1e7), at=st.floats(-1e6, 1.1e9))
def test_a_label_is_known_only_after_its_delay(times: np.ndarray, delay: float, at: float):
    clock = LabelClock(times, delay)
    assert (times[: clock.labelled(at)] + delay < at).all()
    assert clock.labelled(at) <= np.searchsorted(times, at, side="left")


def test_without_a_calendar_so_many_rows_count_for_a_month():
    times = positions_as_times(10, PeriodRule(rows=4))
    periods = cut_periods(LabelClock(times, has_calendar=False), PeriodRule(rows=4))
    assert [period.end for period in periods[:2]] == [MONTH_S, 2 * MONTH_S]
    assert [period.name for period in periods] == ["row 1", "row 5", "row 9"]
    with pytest.raises(UsageError, match="the rows have no dates, only an order: say --period '5000 rows'"):
        positions_as_times(10, PeriodRule("month"))


def test_the_first_champion_gets_as_few_periods_as_hold_enough_rows(past):
    assert num_training(past.periods, 100) == 1
    assert num_training(past.periods, 311) == 2
    assert num_training(past.periods, 10, parse_date("2020-04-01")) == 3
    assert num_training(past.periods, 10, parse_date("2020-04-20")) == 3
    with pytest.raises(UsageError, match="needs 9999 rows, but the data has 3660 rows in 12 periods"):
        num_training(past.periods, 9999)
    with pytest.raises(UsageError, match="--from 2019-01-01, but the data has"):
        num_training(past.periods, 10, parse_date("2019-01-01"))


def test_a_last_period_that_has_hardly_begun_is_left_out(past):
    begin = parse_date("2020-01-01")
    stub = cut_periods(LabelClock(begin + np.arange(92) * 86_400.0), PeriodRule("month"))
    assert [period.num_rows for period in stub] == [31, 29, 31, 1]
    assert without_stub(stub) == stub[:-1]
    assert without_stub(past.periods) == past.periods


def test_no_rows_are_no_past():
    with pytest.raises(DataError, match="no past to replay"):
        cut_periods(LabelClock(np.zeros(0)), PeriodRule("month"))


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
    with pytest.raises(UsageError, match=r"got data\.kind text, expected table, image or series"):
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


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"known_future": ["x"]}, r"the spec has data.window.known_future: drop it for this"),
        ({"series_key": "x"}, r"the spec has data.window.series_key: drop it for this"),
    ],
)
def test_windows_that_cannot_be_replayed_are_refused(window: dict[str, object], message: str):
    split = {"by": "time", "column": "t"}
    data = Data.model_validate(
        {"source": "x.csv", "target": "y", "kind": "series", "split": split, "window": {"length": 3, **window}}
    )
    with pytest.raises(UsageError, match=message):
        in_time_order(pa.table({"t": [1, 2], "x": [1, 2], "y": [1, 2]}), data, PeriodRule("month"))
