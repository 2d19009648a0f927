"""Batches of given rows of every kind: what is shown, what is logged, and where the one ends and the other begins."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data.preparation import SeriesInput
from models.errors import DataError, TrainingError
from models.inference import batch
from models.inference.batch import (
    ReadOptions,
    csv_types,
    examples,
    logged_columns,
    part_of,
    score_columns,
    shown_columns,
)
from models.inference.loaded_model import LoadedModel
from models.inputs.categorical.record import CategoricalInput
from tests.finished_jobs import raw_table, spec_of, table_preparation

AT = datetime(2026, 2, 3, tzinfo=UTC)
NETS = {
    "table": ("trees", "multiclass", {}),
    "image": ("resnet", "multiclass", {"width": 4}),
    "series": ("lstm", "regression", {"hidden": 8}),
    "text": ("lstm", "language", {"hidden": 8}),
}
"""Those that `tests/unit/models/export/test_export.py` exports with every change: an export is made once for all."""


@pytest.fixture
def predicted(exported_job, tmp_path, monkeypatch):
    """A function that predicts raw rows of a kind: the parts, by way of a Parquet file."""

    def run(kind: str, table: pa.Table | None = None) -> tuple[list[pa.Table], LoadedModel]:
        net, task, arguments = NETS[kind]
        _, answer = exported_job(net, kind, task, **arguments)
        model, data = LoadedModel("tiny", "7", Path(answer["path"]).parent), spec_of(kind, task).data
        pq.write_table(raw_table(kind, task) if table is None else table, tmp_path / "rows.parquet")
        monkeypatch.setattr(batch, "PART_ROWS", 128)
        reading = ReadOptions(data, model.preparation, tmp_path, {})
        parts, first = [], 0
        for given, feed in examples(reading, [tmp_path / "rows.parquet"], "rows.parquet"):
            ids = pa.array([f"r{first + n}" for n in range(given.num_rows)])
            parts.append(part_of(model, given, feed, ids, AT, data))
            first += given.num_rows
        return parts, model

    return run


def test_a_table_logs_what_the_graph_was_given_and_the_rest_raw(predicted):
    table = raw_table("table", "multiclass").append_column("note", pa.array(["n"] * 300))
    parts, model = predicted("table", table)
    assert [part.num_rows for part in parts] == [128, 128, 44]
    classes = model.preparation.target.classes or []
    assert shown_columns(parts[0].schema) == ["id", "label", *(f"probability_{name}" for name in classes), "version"]
    assert set(logged_columns(parts[0].schema)) == {
        "id", "version", "at", "origin", "score", "scores", "raw.note",
        "input.größe (m)", "input.n/1", "input.city", "input.month", "input.is late",
    }  # fmt: skip
    whole = pa.concat_tables(parts)
    assert whole.column("at").unique().to_pylist() == [AT]
    assert whole.column("version").unique().to_pylist() == ["7"]
    chances = np.array(whole.column("scores").to_pylist())
    for at, name in enumerate(classes):
        assert chances[:, at].tolist() == whole.column(f"probability_{name}").to_pylist()
    assert whole.column("score").null_count == 300


def test_images_keep_their_bytes_and_come_in_parts_that_fit(predicted, monkeypatch):
    monkeypatch.setattr(batch, "PART_BYTES", 100 * 4 * 6 * 2)
    parts, _ = predicted("image")
    assert [part.num_rows for part in parts] == [100, 100, 100]
    names = logged_columns(parts[0].schema)
    assert "raw.image" in names
    assert not [name for name in names if name.startswith("input.")]
    assert (
        parts[0].column("raw.image").to_pylist() == raw_table("image", "multiclass").column("image").to_pylist()[:100]
    )


def test_a_row_of_a_series_is_the_last_step_of_a_window(predicted):
    table = raw_table("series", "regression")
    parts, _ = predicted("series", table.take(np.random.default_rng(1).permutation(300)))  # put in order of time
    whole = pa.concat_tables(parts)
    assert whole.column("raw.time").to_pylist() == list(range(7, 300))
    assert shown_columns(whole.schema) == ["id", "time", "prediction", "version"]
    assert whole.column("time").to_pylist() == list(range(7, 300))
    assert whole.column("score").to_pylist() == whole.column("prediction").to_pylist()


@pytest.mark.parametrize(("time", "shown"), [("day", ["id", "shop", "day"]), ("id", ["id", "shop"])])
def test_a_window_shows_its_series_and_time_and_an_id_stays_one(exported_job, time, shown):
    _, answer = exported_job("lstm", "series", "regression", hidden=8)
    model = LoadedModel("tiny", "7", Path(answer["path"]).parent)
    series = SeriesInput(time=time, key="shop", frequency="rows")
    model.preparation = model.preparation.model_copy(update={"series": series})
    rows = pa.table({time: [3, 4], "shop": ["a", "b"]})
    length, width = model.preparation.window.length, len(model.preparation.numeric)
    feed = {"series": np.zeros((2, length, width))}
    part = part_of(model, rows, feed, pa.array(["r0", "r1"]), AT, spec_of("series", "regression").data)
    assert shown_columns(part.schema) == [*shown, "prediction", "version"]
    assert part.column("id").to_pylist() == ["r0", "r1"]


def test_steps_whose_future_is_not_known_get_no_prediction(run_prepare, series_spec, series, tmp_path):
    spec = series_spec(horizon=[1, 3], known_future=["heat"])
    _, preparation = run_prepare(series, spec)
    reading = ReadOptions(spec.data, preparation, tmp_path, {})
    pq.write_table(series.slice(0, 20), tmp_path / "new.parquet")
    ((rows, feed),) = examples(reading, [tmp_path / "new.parquet"], "new.parquet")
    assert rows.column("t").to_pylist() == list(range(4, 17))
    assert rows.column_names == series.column_names
    heat = series.column("heat").to_numpy()
    np.testing.assert_allclose(feed["series"][:, -1, 2:], np.stack([heat[5:18], heat[7:20]], axis=1))
    assert "3 windows get no prediction" in reading.notes[0]


def test_a_step_that_is_refused_is_named_by_time_and_series_and_a_row_as_it_stands_in_the_file(
    run_prepare, series_spec, series, tmp_path
):
    spec = series_spec(horizon=[1, 3], known_future=["heat"], series_key="shop")
    both = pa.concat_tables([series.append_column("shop", pa.array([shop] * 120)) for shop in "ab"])
    _, preparation = run_prepare(both, spec)
    mixed = both.slice(110, 30).take(np.random.default_rng(0).permutation(30)).sort_by([("t", "descending")])

    def read(column: str, values: list[object]) -> None:
        pq.write_table(mixed.set_column(mixed.column_names.index(column), column, [values]), tmp_path / "new.parquet")
        reading = ReadOptions(spec.data, preparation, tmp_path, {})
        list(examples(reading, [tmp_path / "new.parquet"], "new.parquet"))

    heat = mixed.column("heat").to_pylist()
    at = mixed.column("t").to_pylist().index(12)
    with pytest.raises(DataError, match=r"new\.parquet: step 11 of shop 'b': no value of 'heat' for the step 1 ahead"):
        read("heat", [*heat[:at], None, *heat[at + 1 :]])
    with pytest.raises(DataError, match=rf"new\.parquet, row {at + 1}, column 'heat': got inf"):
        read("heat", [*heat[:at], float("inf"), *heat[at + 1 :]])


def test_a_column_with_the_name_of_an_input_that_is_made_is_one_of_the_caller(
    run_prepare, series_spec, series, tmp_path
):
    spec = series_spec(horizon=[1, 3], known_future=["heat"])
    _, preparation = run_prepare(series, spec)
    reading, feeds = ReadOptions(spec.data, preparation, tmp_path, {}), []
    for table in (series, series.append_column("heat_h3", pa.array(["a"] * 120))):
        pq.write_table(table, tmp_path / "new.parquet")
        ((rows, feed),) = examples(reading, [tmp_path / "new.parquet"], "new.parquet")
        assert rows.column_names == table.column_names
        feeds.append(feed["series"])
    np.testing.assert_array_equal(*feeds)
    pq.write_table(series.drop_columns(["heat"]), tmp_path / "new.parquet")
    with pytest.raises(DataError, match=r"new\.parquet: the model takes 'heat': no column 'heat'"):
        list(examples(reading, [tmp_path / "new.parquet"], "new.parquet"))


def test_texts_are_read_and_their_bits_logged(predicted):
    parts, _ = predicted("text", pa.table({"text": ["und so weiter", "東京"]}))
    (part,) = parts
    assert shown_columns(part.schema) == ["id", "next_character", "probability", "bits_per_char", "version"]
    assert part.column("score").to_pylist() == part.column("bits_per_char").to_pylist()


def test_columns_that_are_not_even_made_are_told(predicted):
    with pytest.raises(DataError, match=r"rows\.parquet: the model takes 'city'"):
        predicted("table", raw_table("table", "multiclass").drop_columns(["city"]))


def test_rows_that_the_graph_refuses_are_refused(exported_job):
    _, answer = exported_job("mlp", "table", "binary", hidden=8)
    model = LoadedModel("tiny", "7", Path(answer["path"]).parent)
    rows = pa.table({"nothing": np.zeros(3)})
    with pytest.raises(TrainingError, match="cannot run on these rows"):
        part_of(model, rows, {"nothing": np.zeros(3)}, rows.column(0), AT, spec_of("table", "binary").data)


@pytest.mark.parametrize("scores", [np.array([0.25, np.nan]), np.arange(6.0).reshape(2, 3)])
def test_scores_are_one_column_and_the_other_is_null(scores):
    columns = score_columns(scores)
    name, other = ("score", "scores") if scores.ndim == 1 else ("scores", "score")
    np.testing.assert_array_equal(np.array(columns[name].to_pylist()), scores)
    assert columns[other].null_count == 2
    assert (columns["score"].type, columns["scores"].type) == (pa.float64(), pa.list_(pa.float64()))


def test_categories_of_a_csv_are_text_or_of_the_types_of_training_and_others_of_the_raw_table():
    kinds = {"n/1": pa.int64(), "when": pa.timestamp("us"), "city": pa.null(), "tags": pa.list_(pa.string())}
    raw = pa.schema({**kinds, "size": pa.dictionary(pa.int8(), pa.int64())})
    others = {"when": pa.timestamp("us"), "tags": pa.string(), "size": pa.int64()}
    inputs = {
        **dict.fromkeys(["größe (m)", "n/1"], pa.float64()),
        **dict.fromkeys(["city", "month", "is late"], pa.string()),
    }
    assert csv_types(table_preparation().column_inputs, raw) == {**others, **inputs}
    assert csv_types(table_preparation().column_inputs, raw, is_made=True) == {
        **others,
        "größe (m)": pa.float64(),
        "n/1": pa.float64(),
        "city": pa.string(),
        "month": pa.float64(),
        "is late": pa.bool_(),
    }
    assert "when" not in csv_types(table_preparation().column_inputs, None)
    assert (
        csv_types(table_preparation().column_inputs, pa.schema({"n/1": pa.bool_()}), is_made=True)["n/1"] == pa.bool_()
    )


def test_categories_beyond_2_to_the_53_pass_a_feature_function_as_integers():
    """As floats, 2^53 and 2^53 + 1 would be one category, or none."""
    preparation = table_preparation()
    categorical = [
        part.model_copy(update={"categories": ["7", str(2**53 + 1)]}) if part.name == "month" else part
        for part in preparation.of(CategoricalInput)
    ]
    large = preparation.with_inputs("categorical", categorical)
    raw = pa.schema({"month": pa.int64()})
    assert csv_types(large.column_inputs, raw, is_made=True)["month"] == pa.int64()
    assert csv_types(large.column_inputs, None, is_made=True)["month"] == pa.float64()
    assert csv_types(preparation.column_inputs, raw, is_made=True)["month"] == pa.float64()
