import numpy as np
import pyarrow as pa
import pytest

from models.data.series import example_splits, first_target, time_order
from models.errors import DataError


def test_rows_are_put_in_time_order(series_spec):
    table = pa.table({"t": [3, 1, 2], "y": [3.0, 1.0, 2.0]})
    assert time_order(table, series_spec().data).tolist() == [1, 2, 0]


def test_two_rows_of_one_moment_are_refused(series_spec):
    table = pa.table({"t": [1, 2, 2], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="1 rows share their time with another, first 2"):
        time_order(table, series_spec().data)


def test_an_example_needs_a_whole_window_a_target_and_its_place_on_the_stride(series_spec):
    data = series_spec(stride=3).data
    assert data.window is not None
    assert first_target(data.window) == 6
    values = np.arange(20.0)
    values[9] = np.nan
    codes = example_splits(np.zeros(20, dtype=np.int8), pa.table({"y": values}), data)
    assert np.flatnonzero(codes == 0).tolist() == [6, 12, 15, 18]


def test_a_series_shorter_than_a_window_is_refused(series_spec):
    with pytest.raises(DataError, match=r"one example spans 7 steps.*the series has 6"):
        example_splits(np.zeros(6, dtype=np.int8), pa.table({"y": np.arange(6.0)}), series_spec().data)
