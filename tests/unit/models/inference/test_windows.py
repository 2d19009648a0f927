"""Rows of a series: steps make windows, tensors are windows."""

import json
from datetime import datetime
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.data.preparation import Preparation, SeriesInput
from models.errors import DataError
from models.inference.batch import ReadOptions, csv_types, examples
from models.inference.loaded_model import input_schema
from models.inference.windows import SeriesSchema
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Data
from models.sources.delimiter import DECIMAL_COMMA
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


def test_steps_may_be_written_in_the_forms_of_their_columns() -> None:
    schema = panel()
    schema.forms = {"when": "%d.%m.%Y", "x": DECIMAL_COMMA}
    steps = [day(number, 7, 1000.5 + number) for number in (1, 2, 3)]
    written = [{**step, "when": f"0{number}.01.2024", "x": f"1.00{number},5"} for number, step in enumerate(steps, 1)]
    expected = panel().from_records(steps).feed["series"]
    np.testing.assert_array_equal(schema.from_records(written).feed["series"], expected)
    with pytest.raises(DataError, match=r"row 2, column 'x': got '1.5', expected a number with a decimal comma"):
        schema.from_records([written[0], {**written[1], "x": "1.5"}, written[2]])
    with pytest.raises(
        DataError, match=r"row 1, column 'when': got '2024/01/01', expected a time such as 31\.05\.2024"
    ):
        schema.from_records([{**written[0], "when": "2024/01/01"}, *written[1:]])


def panel_preparation(**window: object) -> Preparation:
    preparation = preparation_of("series")
    assert preparation.window is not None
    return preparation.model_copy(
        update={
            "window": preparation.window.model_copy(update={"series_key": "shop", **window}),
            "series": SeriesInput(time="when", key="shop", frequency="day"),
        }
    )


def panel(**window: object) -> SeriesSchema:
    return SeriesSchema(panel_preparation(**window))


def day(number: int, shop: object, x: float) -> dict[str, object]:
    return {"when": f"2024-01-0{number}", "shop": shop, "x": x, "y": 0}


def test_steps_of_many_series_make_windows_of_each_in_the_order_of_their_last_steps() -> None:
    mixed = [day(3, 7, 13), day(1, 8, 20), day(1, 7, 11), day(3, 8, 22), day(2, 7, 12), day(2, 8, 21), day(4, 8, 23)]
    rows = panel().from_records(mixed)
    assert rows.feed["series"][:, :, 0].tolist() == [[11, 12, 13], [20, 21, 22], [21, 22, 23]]
    assert rows.extra["shop"] == [7, 8, 8]
    untimed = [{name: step[name] for name in ("shop", "x", "y")} for step in sorted(mixed, key=lambda step: step["x"])]
    assert panel().from_records(untimed).feed["series"][:, :, 0].tolist() == [[11, 12, 13], [20, 21, 22], [21, 22, 23]]


def test_a_request_with_a_gap_is_refused_filled_or_cut_as_in_training() -> None:
    steps = [day(1, "a", 1), day(2, "a", 2), day(4, "a", 4), day(5, "a", 5), day(6, "a", 6)]
    with pytest.raises(DataError, match="1 steps are missing in 1 gaps"):
        panel().from_records(steps)
    assert panel(gaps="break").from_records(steps).feed["series"][:, :, 0].tolist() == [[4, 5, 6]]
    filled = panel(gaps="fill").from_records(steps).feed["series"][:, :, 0]
    np.testing.assert_array_equal(filled, [[2, np.nan, 4], [np.nan, 4, 5], [4, 5, 6]])
    with pytest.raises(DataError, match="the longest stretch without a gap has 2 steps, expected at least 3"):
        panel(gaps="break").from_records(steps[:4])


@pytest.mark.parametrize(
    ("form", "kind"), [("%d.%m.%Y", str), ("%Y%m%d", int), ("%Y%m%d", float)], ids=["texts", "whole numbers", "floats"]
)
def test_times_in_their_own_form_order_the_steps_of_requests_and_files(form: str, kind: type, tmp_path: Path) -> None:
    iso = [day(4, "a", 4), day(1, "a", 1), day(2, "a", 2), day(5, "a", 5)]
    steps = [{**step, "when": kind(datetime.fromisoformat(step["when"]).strftime(form))} for step in iso]
    preparation = panel_preparation(gaps="fill").model_copy(update={"dates": {"when": form}})
    schema = input_schema(preparation)
    expected = panel(gaps="fill").from_records(sorted(iso, key=itemgetter("x"))).feed["series"]
    assert expected.shape == (2, 3, 2)
    by_name = {name: [step[name] for step in steps] for name in steps[0]}
    for rows in (schema.from_records(steps), schema.from_columns(by_name)):
        order = np.argsort(rows.extra["x"])
        np.testing.assert_array_equal(rows.feed["series"][order], expected)
    lines = [",".join(map(str, step.values())) for step in ({name: name for name in steps[0]}, *steps)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, steps)))
    for name in ("rows.csv", "rows.jsonl"):
        types = csv_types(preparation.column_inputs, None)
        reading = ReadOptions(Data(source=name, target="y"), preparation, tmp_path, types)
        ((_, feed),) = examples(reading, [tmp_path / name], name)
        np.testing.assert_array_equal(feed["series"], expected)
    with pytest.raises(DataError, match="row 2, column 'when': got 'soon', expected a time such as"):
        schema.from_records([steps[0], {**steps[1], "when": "soon"}])


def test_steps_that_name_no_series_or_no_time_are_refused() -> None:
    with pytest.raises(DataError, match="takes 'shop'"):
        panel().from_records([{"x": 1, "y": 1}] * 3)
    with pytest.raises(DataError, match="times of the steps are not of one kind"):
        panel().from_records([{**day(1, "a", 1), "when": when} for when in ("2024-01-01", 2, 3)])


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (STEPS[:2], "got 2 steps, expected at least 3"),
        ([{"x": 1}] * 3, "takes 'y'"),
        ([{"x": "a", "y": 1}] * 3, "step 1, column 'x': got 'a'"),
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


def known(**window: object) -> SeriesSchema:
    preparation = preparation_of("series")
    assert preparation.window is not None
    future = NumericInput(name="x_h2", fill=0.0, source="x", ahead=2)
    update = {
        "window": preparation.window.model_copy(update={"horizon": 2, "known_future": ["x"], **window}),
        "series": SeriesInput(time="when", key="shop" if window else None, frequency="day"),
    }
    longer = preparation.with_inputs("numeric", [*preparation.numeric, future])
    return SeriesSchema(longer.model_copy(update=update))


def test_steps_after_a_window_give_what_is_known_of_them() -> None:
    schema, steps = known(), [{"x": float(at), "y": 7.0 if at < 4 else None} for at in range(6)]
    assert schema.record_schema()["required"] == schema.columns == ["x", "y"]
    rows = schema.from_records(steps)
    np.testing.assert_array_equal(rows.feed["series"][:, -1], [[2, 7, 4], [3, 7, 5]])
    assert rows.extra["x"] == [2, 3]
    with pytest.raises(DataError, match="no window of 3 steps has 2 steps after it"):
        schema.from_records(steps[:4])
    with pytest.raises(DataError, match="step 4: no value of 'x' for the step 2 ahead, which the model takes as known"):
        schema.from_records([*steps[:5], {"x": None, "y": None}])
    with pytest.raises(DataError, match="window 2: no value of 'x' for the step 2 ahead"):
        schema.from_array([[[1, 2, 3]] * 3, [[1, 2, None]] * 3])


def test_what_is_known_is_of_the_same_series() -> None:
    days = [day(at, shop, at + 10.0 * (shop == "b")) for at in (5, 4, 3, 2, 1) for shop in ("a", "b")]
    rows = known(series_key="shop").from_records(days)
    assert rows.feed["series"][:, -1, 2].tolist() == [5, 15]
    assert rows.extra["shop"] == ["a", "b"]


def test_a_window_before_a_missing_step_gets_no_prediction_where_gaps_are_filled() -> None:
    schema, days = known(series_key="shop", gaps="fill"), [day(at, "a", float(at)) for at in (1, 2, 3, 4, 6, 7, 8)]
    rows = schema.from_records(days)
    assert rows.extra["x"] == [4, 6]
    np.testing.assert_array_equal(rows.feed["series"][:, -1, 2], [6, 8])


def test_a_table_gives_every_window_with_its_future() -> None:
    rows = pa.table({"y": np.arange(7.0), "x_h2": np.zeros(7), "x": np.arange(7.0) * 10})
    assert known().from_arrow(rows)["series"][:, -1].tolist() == [[20, 2, 40], [30, 3, 50], [40, 4, 60]]
