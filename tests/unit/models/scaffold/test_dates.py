"""Dates in words become dates by a key that `new` writes; an order that no value tells is not guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from models.inference.forms import with_forms
from models.scaffold.dates import date_forms
from models.scaffold.table import guess_spec

DAYS = np.arange("2000-01-01", "2000-07-01", dtype="datetime64[D]")
FORMS = ["%b %d %Y", "%B %d, %Y", "%d.%m.%Y", "%d %B %Y", "%d-%b-%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%m/%d/%y"]
CLOCKS = ["%d.%m.%Y %H:%M", "%m/%d/%y %H:%M:%S", "%d/%m/%Y, %I:%M %p", "%b %d, %Y %I:%M:%S %p"]


def written(form: str, days: np.ndarray = DAYS) -> pa.Table:
    return pa.table({"day": [day.item().strftime(form) for day in days], "y": np.arange(len(days)) * 37 % 101})


@pytest.mark.parametrize("form", FORMS)
def test_dates_in_words_are_read_as_the_dates_that_they_are(form: str) -> None:
    table = written(form)
    days = with_forms(table, date_forms(table)).column("day").to_numpy()
    np.testing.assert_array_equal(days.astype("datetime64[D]"), DAYS)


@pytest.mark.parametrize("form", CLOCKS)
def test_dates_with_a_clock_are_read_to_the_minute(form: str) -> None:
    times = (DAYS.astype("datetime64[m]") + np.arange(len(DAYS)) * 97 % 1440).astype("datetime64[us]")
    table = written(form, times)
    np.testing.assert_array_equal(with_forms(table, date_forms(table)).column("day").to_numpy(), times)


def test_an_order_that_no_value_tells_is_not_guessed(tmp_path: Path) -> None:
    firsts = DAYS[[day.item().day <= 12 for day in DAYS]]
    assert date_forms(written("%d/%m/%Y", firsts)) == {}
    table = written("%d/%m/%Y", firsts).append_column("x", pa.array(np.sin(np.arange(len(firsts)))))
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    assert "No value says whether the day or the month comes first" in guess_spec(tmp_path / "rows.csv", "a", "y")


@pytest.mark.parametrize("text", ["soon", "31.31.2000"])
def test_a_column_with_another_text_is_no_column_of_dates(text: str) -> None:
    assert date_forms(pa.table({"day": [*written("%d.%m.%Y").column("day").to_pylist(), text]})) == {}


def numbered(form: str = "%Y%m%d", step: int = 1) -> list[int]:
    return [int(day.item().strftime(form)) for day in DAYS[::step]]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("date_key", numbered(step=-1), "%Y%m%d"),
        ("orderdate", [*numbered(step=-1), None, 19991231.0], "%Y%m%d"),
        ("x", numbered(), "%Y%m%d"),
        ("Time", numbered("%Y%m%d%H%M%S"), "%Y%m%d%H%M%S"),
        ("x", numbered(step=-1), None),
        ("customer_id", numbered(), None),
        ("date", [*numbered(), 20000231], None),
        ("date", [*numbered(), 0], None),
        ("date", [*range(20240101, 20240131)], None),
        ("date", [*numbered(), 21010101], None),
    ],
)
def test_whole_numbers_are_dates_where_each_is_one_and_a_name_or_their_order_says_so(
    name: str, values: list[int], expected: str | None
) -> None:
    table = pa.table({name: pa.array(values)})
    assert date_forms(table) == ({name: expected} if expected else {})
    if expected:
        moments = with_forms(table, date_forms(table)).column(name).cast("timestamp[s]").drop_null().to_pylist()
        assert [int(moment.strftime(expected)) for moment in moments] == [value for value in values if value]


def test_dates_in_words_are_a_key_of_the_spec(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(written("%b %d %Y"), tmp_path / "rows.csv")
    spec = guess_spec(tmp_path / "rows.csv", "a", "y", "rows.csv")
    assert 'dates: {"day": "%b %d %Y"}' in spec
    assert "kind: series" in spec


def panel(years: range, units: int, time: str = "year") -> pa.Table:
    rng = np.random.default_rng(0)
    unit, year = (part.ravel() for part in np.meshgrid([f"u{index}" for index in range(units)], [*years]))
    order = rng.permutation(len(unit))
    numbers = rng.normal(size=(2, len(unit)))
    return pa.table({"unit": unit[order], time: year[order], "size": numbers[0], "y": numbers[1]})


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (panel(range(1980, 2021), 30), "split: {by: time, column: year}"),
        (panel(range(2000, 2005), 40), "split: {by: group, column: unit}"),
        (panel(range(1900, 2000), 6), "series_key: unit"),
        (panel(range(1980, 2021), 30, "score"), "split: {by: random}"),
    ],
    ids=["by time", "few years", "a forecast", "no time"],
)
def test_rows_of_units_over_years_are_not_split_at_random(tmp_path: Path, table: pa.Table, expected: str) -> None:
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    spec = guess_spec(tmp_path / "rows.csv", "a", "y")
    assert expected in spec
    assert ("Each unit has rows over year." in spec) == ("{by: time" in expected or "{by: group" in expected)


def test_a_series_of_years_is_a_forecast(tmp_path: Path) -> None:
    years = np.arange(1700, 1990)
    pyarrow.csv.write_csv(pa.table({"year": years, "y": np.sin(years) * 5}), tmp_path / "rows.csv")
    assert "kind: series" in guess_spec(tmp_path / "rows.csv", "a", "y")
