"""Rows of a series: steps make windows, tensors are windows."""

import numpy as np
import pyarrow as pa
import pytest

from models.errors import DataError
from models.inference.windows import SeriesSchema
from tests.finished_jobs import series_preparation
from tests.served_models import preparation_of

SCHEMA = SeriesSchema(preparation_of("series"))
STEPS = [{"x": step, "y": None, "when": f"t{step}"} for step in range(4)]
WINDOW = [[0, 1], [2, None], [4, 5]]


def test_steps_make_a_window_for_each_that_has_enough_before_it() -> None:
    rows = SCHEMA.from_records(STEPS)
    assert rows.feed["series"].shape == (2, 3, 2)
    np.testing.assert_array_equal(rows.feed["series"][:, :, 0], [[0, 1, 2], [1, 2, 3]])
    assert np.isnan(rows.feed["series"][:, :, 1]).all()
    assert rows.feed["series"].flags.c_contiguous


def test_what_is_kept_is_of_the_step_that_a_window_ends_with() -> None:
    assert SCHEMA.from_records(STEPS).extra == {"x": [2, 3], "y": [None, None], "when": ["t2", "t3"]}
    assert SCHEMA.from_array([WINDOW]).extra == {"x": [4.0], "y": [5.0]}


def test_windows_come_as_lists_or_tensors() -> None:
    expected = np.array([[[0, 1], [2, np.nan], [4, 5]]])
    np.testing.assert_array_equal(SCHEMA.from_array([WINDOW]).feed["series"], expected)
    np.testing.assert_array_equal(SCHEMA.from_columns({"series": [WINDOW]}).feed["series"], expected)
    np.testing.assert_array_equal(SCHEMA.from_tensors({"series": expected}).feed["series"], expected)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (STEPS[:2], "got 2 steps, expected at least 3"),
        ([{"x": 1}] * 3, "takes 'y'"),
        ([{"x": "a", "y": 1}] * 3, "step 0, column 'x': got 'a'"),
    ],
)
def test_steps_that_do_not_do_are_refused(records: list[dict[str, object]], said: str) -> None:
    with pytest.raises(DataError, match=said):
        SCHEMA.from_records(records)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "got shape"),
        ([[[1, 2]]], r"got shape \[1, 1, 2\], expected \[rows, 3, 2\]"),
        ([[[1, 2], [3]]], "no array of numbers"),
        ([[["a", 2]] * 3], "no array of numbers"),
        ("text", "no array of numbers"),
        ([[[1, float("inf")]] * 3], "got inf, expected a number between -1e\\+30 and 1e\\+30"),
    ],
)
def test_windows_that_do_not_do_are_refused(values: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        SCHEMA.from_array(values)


def test_texts_are_no_windows() -> None:
    with pytest.raises(DataError, match="BYTES"):
        SCHEMA.from_tensors({"series": np.full((1, 3, 2), "a", object)})


def test_a_record_is_one_step() -> None:
    assert SCHEMA.record_schema()["required"] == ["x", "y"]


def test_an_item_is_a_window() -> None:
    schema = SCHEMA.item_schema()
    assert schema is not None
    assert (schema["minItems"], schema["items"]["maxItems"]) == (3, 2)


def test_a_table_gives_every_window() -> None:
    rows = pa.table({"load": np.arange(7.0), "°C": np.arange(7.0) * 10})
    schema = SeriesSchema(series_preparation())
    windows = schema.from_arrow(rows)["series"]
    assert windows.shape == (3, 5, 2)
    assert windows[1, :, 0].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(DataError, match="given: got 4 steps, expected at least 5"):
        schema.from_arrow(rows.slice(0, 4), display_name="given")
