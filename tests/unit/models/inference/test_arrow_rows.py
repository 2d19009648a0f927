"""Rows as people give them: what a graph takes of them, and what is told of those that it cannot."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from ruamel.yaml import YAML

from models.data.preparation import TextInput
from models.data.prepare import prepare_table
from models.errors import DataError
from models.inference.arrow_rows import check_names, csv_types, feed_of_rows, lines_of, series_feeds
from models.inference.table import TableReader
from models.project_spec.blocks import Spec
from models.scaffold.table import guess_spec
from models.sources.read import read_source
from tests.column_types import typed_columns
from tests.finished_jobs import image_preparation, series_preparation, table_preparation

TABLE = table_preparation()
GOOD = {"größe (m)": [1.5, None], "n/1": [3, 4], "city": ["東京", None], "month": [12.0, 7.0], "is late": [True, False]}


def test_numbers_and_categories_are_as_the_graph_takes_them():
    feed = feed_of_rows(pa.table(GOOD), TABLE)
    assert {name: values.tolist() for name, values in feed.items() if name != "größe (m)"} == {
        "n/1": [3.0, 4.0], "city": ["東京", ""], "month": ["12", "7"], "is late": ["true", "false"]
    }  # fmt: skip
    assert feed["größe (m)"][0] == 1.5
    assert np.isnan(feed["größe (m)"][1])


def test_text_that_is_a_number_is_one_and_a_dictionary_is_its_values():
    rows = pa.table({**GOOD, "n/1": ["3", ""], "city": pa.array(["東京", "x"]).dictionary_encode()})
    feed = feed_of_rows(rows, TABLE)
    assert feed["n/1"][0] == 3.0
    assert np.isnan(feed["n/1"][1])
    assert feed["city"].tolist() == ["東京", "x"]


def test_booleans_and_whole_numbers_are_known_as_text_too():
    feed = feed_of_rows(pa.table({**GOOD, "is late": ["True", "FALSE"], "month": ["12.0", "7"]}), TABLE)
    assert feed["is late"].tolist() == ["true", "false"]
    assert feed["month"].tolist() == ["12", "7"]


def test_a_boolean_that_is_an_input_as_a_number_is_read_as_one():
    assert csv_types(TABLE, pa.schema({"n/1": pa.bool_()}), is_made=True)["n/1"] == pa.bool_()
    assert feed_of_rows(pa.table({**GOOD, "n/1": [True, None]}), TABLE)["n/1"][0] == 1.0


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("n/1", ["3", "three"], "given, row 11, column 'n/1': got 'three', expected a number"),
        ("n/1", [1.0, float("inf")], "given, row 11, column 'n/1': got inf, expected a number between"),
        ("n/1", pa.array([1, 2], pa.date32()), "column 'n/1' is date32.*expected numbers"),
        ("city", [["a"], ["b"]], "column 'city' is list.*expected text"),
    ],
)
def test_a_value_that_cannot_be_taken_is_told_with_its_row(column, values, told):
    with pytest.raises(DataError, match=told):
        feed_of_rows(pa.table({**GOOD, column: values}), TABLE, first_row=10, display_name="given")


def test_a_missing_column_names_the_nearest():
    with pytest.raises(DataError, match=r"new\.csv: the model takes 'month'.*did you mean 'Month'"):
        check_names(["größe (m)", "n/1", "city", "Month", "is late"], TABLE, "new.csv")


def test_inputs_of_a_csv_are_text_or_of_the_types_of_training_and_others_of_the_raw_table():
    kinds = {"n/1": pa.int64(), "when": pa.timestamp("us"), "city": pa.null(), "tags": pa.list_(pa.string())}
    raw = pa.schema({**kinds, "size": pa.dictionary(pa.int8(), pa.int64())})
    others = {"when": pa.timestamp("us"), "tags": pa.string(), "size": pa.int64()}
    inputs = dict.fromkeys(["größe (m)", "n/1", "city", "month", "is late"], pa.string())
    assert csv_types(TABLE, raw) == {**others, **inputs}
    assert csv_types(TABLE, raw, is_made=True) == {
        **others,
        "größe (m)": pa.float64(),
        "n/1": pa.float64(),
        "city": pa.string(),
        "month": pa.float64(),
        "is late": pa.bool_(),
    }
    assert "when" not in csv_types(TABLE, None)


def test_images_are_their_bytes():
    size = 4 * 6 * 2
    rows = pa.table({"image": [bytes(range(size)), bytes(size)]})
    feed = feed_of_rows(rows, image_preparation())
    assert feed["image"].shape == (2, 4, 6, 2)
    with pytest.raises(DataError, match=r"given, rows from 7.*1 images have another size"):
        feed_of_rows(pa.table({"image": [bytes(size), b"short"]}), image_preparation(), 7, "given")


def test_a_series_gives_every_window():
    rows = pa.table({"load": np.arange(7.0), "°C": np.arange(7.0) * 10})
    ((ends, feed),) = list(series_feeds(rows, series_preparation()))
    assert ends.tolist() == [4, 5, 6]
    assert feed["series"][1, :, 0].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(DataError, match="4 rows, expected at least 5"):
        list(series_feeds(rows.slice(0, 4), series_preparation()))


def test_lines_are_texts():
    characters = TextInput(column="text", length=2, stride=2, alphabet="ab")
    assert lines_of(pa.table({"text": ["ab", None]}), characters) == ["ab", ""]
    with pytest.raises(DataError, match="column 'text' is int64, expected text"):
        lines_of(pa.table({"text": [1]}), characters)


def test_every_type_of_column_is_read_alike_by_batch_and_server(tmp_path: Path) -> None:
    """From a proposed spec on: both hand the same to the graph, missing values too."""
    pq.write_table(typed_columns(), tmp_path / "typed.parquet")
    raw = read_source(tmp_path / "typed.parquet")
    text = guess_spec(tmp_path / "typed.parquet", "typed", "y")
    _, preparation = prepare_table(raw, Spec.model_validate(YAML(typ="safe").load(text)), tmp_path)
    names = [part.name for part in (*preparation.numeric, *preparation.categorical)]
    assert {"int8", "uint64", "float16", "decimal", "bool", "large_string", "dictionary"} <= set(names)

    def plain(value: Any) -> Any:
        number = value if value is None or isinstance(value, str | bool | int) else float(value)
        return None if number != number else number

    batch = feed_of_rows(raw.drop_columns(["y"]), preparation, 1, "typed.parquet")
    records = [{name: plain(value) for name, value in row.items()} for row in raw.select(names).to_pylist()]
    served = TableReader(preparation).of_records(records).feed
    for name in names:
        assert_array_equal(np.asarray(batch[name]), np.asarray(served[name]), err_msg=name)
