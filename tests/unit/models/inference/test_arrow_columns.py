"""Rows as people give them: what a graph takes of them, and what is told of those that it cannot."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from ruamel.yaml import YAML

from models.data.prepare import prepare_table
from models.errors import DataError
from models.inference.table import TableSchema
from models.project_spec.blocks import Spec
from models.scaffold.table import guess_spec
from models.sources.read import read_source
from tests.column_types import typed_columns
from tests.finished_jobs import table_preparation

SCHEMA = TableSchema(table_preparation())
GOOD = {"größe (m)": [1.5, None], "n/1": [3, 4], "city": ["東京", None], "month": [12.0, 7.0], "is late": [True, False]}


def test_numbers_and_categories_are_as_the_graph_takes_them():
    feed = SCHEMA.from_arrow(pa.table(GOOD))
    assert {name: values.tolist() for name, values in feed.items() if name != "größe (m)"} == {
        "n/1": [3.0, 4.0], "city": ["東京", ""], "month": ["12", "7"], "is late": ["true", "false"]
    }  # fmt: skip
    assert feed["größe (m)"][0] == 1.5
    assert np.isnan(feed["größe (m)"][1])


def test_text_that_is_a_number_is_one_and_a_dictionary_is_its_values():
    rows = pa.table({**GOOD, "n/1": ["3", ""], "city": pa.array(["東京", "x"]).dictionary_encode()})
    feed = SCHEMA.from_arrow(rows)
    assert feed["n/1"][0] == 3.0
    assert np.isnan(feed["n/1"][1])
    assert feed["city"].tolist() == ["東京", "x"]


def test_booleans_and_whole_numbers_are_known_as_text_too():
    feed = SCHEMA.from_arrow(pa.table({**GOOD, "is late": ["True", "FALSE"], "month": ["12.0", "7"]}))
    assert feed["is late"].tolist() == ["true", "false"]
    assert feed["month"].tolist() == ["12", "7"]


def test_a_boolean_that_is_an_input_as_a_number_is_read_as_one():
    assert SCHEMA.from_arrow(pa.table({**GOOD, "n/1": [True, None]}))["n/1"][0] == 1.0


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
        SCHEMA.from_arrow(pa.table({**GOOD, column: values}), first_row=10, display_name="given")


def test_every_type_of_column_is_read_alike_by_batch_and_server(tmp_path: Path) -> None:
    """From a proposed spec on: both hand the same to the graph, missing values too."""
    pq.write_table(typed_columns(), tmp_path / "typed.parquet")
    raw = read_source(tmp_path / "typed.parquet")
    text = guess_spec(tmp_path / "typed.parquet", "typed", "y")
    _, preparation = prepare_table(raw, Spec.model_validate(YAML(typ="safe").load(text)), tmp_path)
    names = preparation.columns
    assert {"int8", "uint64", "float16", "decimal", "bool", "large_string", "dictionary", "timestamp"} <= set(names)

    def plain(value: Any) -> Any:
        if isinstance(value, date):
            return value.isoformat()
        number = value if value is None or isinstance(value, str | bool | int) else float(value)
        return None if number != number else number

    batch = TableSchema(preparation).from_arrow(raw.drop_columns(["y"]), 1, "typed.parquet")
    records = [{name: plain(value) for name, value in row.items()} for row in raw.select(names).to_pylist()]
    served = TableSchema(preparation).from_records(records).feed
    for name in names:
        assert_array_equal(np.asarray(batch[name]), np.asarray(served[name]), err_msg=name)
