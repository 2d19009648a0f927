import numpy as np
import pyarrow as pa
import pytest

from tests.unit.models.scaffold.test_table import spec_of


@pytest.mark.parametrize("key", [None, "shop", "number"])
def test_a_number_a_period_is_a_series_and_many_by_a_key_are_too(tmp_path, key):
    months = (np.datetime64("2010-01") + np.arange(96)).astype("datetime64[D]")
    many = 1 if key is None else 3
    table = {"month": np.tile(months, many), "sales": np.arange(96.0 * many)}
    if key is not None:
        table[key] = np.repeat(["Oslo", "Rome", "Wien"] if key == "shop" else [7, 8, 9], 96)
    spec = spec_of(tmp_path, pa.table(table), target="sales")
    assert (spec.data.kind, spec.data.window.series_key, spec.data.split.column) == ("series", key, "month")
    assert spec.data.window.length == 19  # a fifth of the steps


@pytest.mark.parametrize(
    ("first", "minutes", "num_steps", "length"),
    [("2020-01-01", 24 * 60, 200, 21), ("2020-01-01", 30, 900, 96), ("2020-01-01", 1, 2000, 96)],
)
def test_the_window_has_three_of_the_shortest_season(tmp_path, first, minutes, num_steps, length):
    times = np.datetime64(first, "m") + minutes * np.arange(num_steps)
    table = pa.table({"at": times.astype("datetime64[us]"), "sold": np.arange(float(num_steps))})
    assert spec_of(tmp_path, table, target="sold").data.window.length == length


def test_dates_at_any_distance_are_no_series(tmp_path):
    days = np.datetime64("2020-01-01") + np.cumsum(np.random.default_rng(0).integers(1, 9, 120))
    spec = spec_of(tmp_path, pa.table({"day": days, "x": np.arange(120.0), "price": np.arange(120.0)}), target="price")
    assert (spec.data.kind, spec.data.split.by) == ("table", "time")


def test_a_series_of_which_few_days_are_missing_is_one_still(tmp_path):
    random = np.random.default_rng(0)
    days = np.datetime64("2020-01-01") + np.arange(200)
    table = pa.table(
        {"day": np.tile(days, 2), "sold": random.normal(size=400), "shop": np.repeat(["Oslo", "Rome"], 200)}
    )
    spec = spec_of(tmp_path, table.filter(random.random(400) > 0.05), target="sold")
    assert (spec.data.kind, spec.data.window.series_key, spec.data.window.gaps) == ("series", "shop", "fill")
    spec = spec_of(tmp_path, table.filter(random.random(400) > 0.3), target="sold")
    assert spec.data.kind == "table"
