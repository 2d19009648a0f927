"""The rule: one file has the same columns, types and values through every door that reads it, or is refused by each.

Doors: `new` and `ingest` (`read_source`), `plan` (`header_of`), `predict` and `label` (`row_batches`), the server
(`scoring_of_csv`), its feedback (`rows_of_csv`), and the edge bundle and MLflow's model (`csv_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from models.data.header import check_names
from models.data.prepare import prepare_table
from models.errors import DataError
from models.feedback.feedback import with_feedback
from models.identity.hashing import SortedHashSet
from models.inference.loaded_model import input_schema
from models.inference.row_ids import own_ids
from models.inference.row_values import RowError, csv_columns, number_cells, number_text
from models.inputs.categorical.record import CategoricalInput
from models.inputs.types import as_text, is_number
from models.project_spec.blocks import Data, Spec
from models.serving.feedback import rows_of_csv
from models.serving.mlflow_scoring import scoring_of_csv
from models.sources.folders import data_files
from models.sources.header import header_of
from models.sources.read import read_source
from models.sources.row_batches import column_names, concatenated, row_batches
from tasks.tools.sources import ingest

Cells = dict[str, list[str | None]]
Column = tuple[str, list[Any]]


def trained(source: Path) -> tuple[pa.Table, Cells]:
    """Return the table that `new` and `ingest` read, and its values as texts."""
    table = read_source(source)
    return table, {name: as_text(table.column(name)).to_pylist() for name in table.column_names}


def predicted(source: Path, types: Mapping[str, pa.DataType]) -> Cells:
    """Return the values that `predict` reads with the types of the training data, a row at a time."""
    folder = source if source.is_dir() else None
    files = data_files(source)
    table = concatenated(list(row_batches(files, types, 1, folder)))
    assert {name: table.schema.field(name).type for name in table.column_names} == dict(types)
    assert column_names(files[0], folder) == table.column_names
    return {name: as_text(table.column(name)).to_pylist() for name in table.column_names}


def in_form(cells: Cells, numbers: set[str]) -> Cells:
    """Return the cells of a CSV, with numbers in the form of `as_text`."""

    def text(value: Any) -> str | None:
        return number_text(float(value)) if isinstance(value, float) else value

    return {
        name: [text(value) for value in number_cells(values)] if name in numbers else values
        for name, values in cells.items()
    }


ROWS = "a,b\n1,x\n2,y\n"
FILES: dict[str, tuple[str, Cells]] = {
    "plain": (ROWS, {"a": ["1", "2"], "b": ["x", "y"]}),
    "a line break in the header": ('"a\n(EUR)",b\n1,x\n2,y\n', {"a\n(EUR)": ["1", "2"], "b": ["x", "y"]}),
    "a line break in a cell": ('a,b\n1,"x\ny"\n2,y\n', {"a": ["1", "2"], "b": ["x\ny", "y"]}),
    "blank first lines": ("\n\r\n" + ROWS, {"a": ["1", "2"], "b": ["x", "y"]}),
    "blank lines between": ("a,b\n\n1,x\n\n2,y\n\n", {"a": ["1", "2"], "b": ["x", "y"]}),
    "blank first lines, semicolons": ("\n\na;b\n1;x,z\n2;y\n", {"a": ["1", "2"], "b": ["x,z", "y"]}),
    "vertical tab": ("a\x0b,b\n1,x\n2,y\n", {"a\x0b": ["1", "2"], "b": ["x", "y"]}),
    "next line": ("a\x85,b\n1,x\n2,y\n", {"a\x85": ["1", "2"], "b": ["x", "y"]}),
    "line separator": ("a\u2028,b\n1,x\u2028\n2,y\n", {"a\u2028": ["1", "2"], "b": ["x\u2028", "y"]}),
    "carriage returns": ("a,b\r1,x\r2,y\r", {"a": ["1", "2"], "b": ["x", "y"]}),
    "a mark and quotes": ('\ufeff"a",b\r\n1,x\r\n2,y\r\n', {"a": ["1", "2"], "b": ["x", "y"]}),
    "no last line feed": ("a;b\n1;x\n2;y", {"a": ["1", "2"], "b": ["x", "y"]}),
    "tabs": ("a\tb\n1\tx\n2\ty\n", {"a": ["1", "2"], "b": ["x", "y"]}),
    "quotes within": ('a,b\n1,"x""y"\n2,y"z\n', {"a": ["1", "2"], "b": ['x"y', 'y"z']}),
    "text behind a quote": ('a,b\n1,"x"y\n2,y\n', {"a": ["1", "2"], "b": ["xy", "y"]}),
    "missing cells": ('a,b\n,NA\n2,""\n1.5,x\n', {"a": [None, "2", "1.5"], "b": [None, None, "x"]}),
    "control characters": ("a,b\n1,x\x7f\n2,\x00y\x1f\n", {"a": ["1", "2"], "b": ["x\x7f", "\x00y\x1f"]}),
    "spaces": ("a, b\n 1 , x \n2,y\n", {"a": ["1", "2"], " b": [" x ", "y"]}),
    "25 digits": (
        "a,b\n1234567890123456789012345,x\n2,y\n",
        {"a": ["1.2345678901234568e+24", "2"], "b": ["x", "y"]},
    ),
    "20 digits": ("a,b\n18446744073709551615,x\n2,y\n", {"a": ["18446744073709551615", "2"], "b": ["x", "y"]}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_csv_is_the_same_through_every_door(name: str, tmp_path: Path) -> None:
    content, expected = FILES[name]
    path = tmp_path / "rows.csv"
    path.write_bytes(content.encode())
    table, cells = trained(path)
    numbers = {field.name for field in table.schema if is_number(field.type)}
    assert cells == expected, "new and ingest"
    assert header_of(path) == list(expected), "plan"
    assert predicted(path, {field.name: field.type for field in table.schema}) == expected, "predict"
    labels = predicted(path, dict.fromkeys(expected, pa.string()))
    assert {name: values for name, values in labels.items() if name not in numbers} == {
        name: values for name, values in expected.items() if name not in numbers
    }, "label"
    sent = csv_columns(path.read_bytes())
    exact = {name for name in numbers if pa.types.is_integer(table.schema.field(name).type)} if "20" in name else set()
    assert in_form(sent, numbers - exact) == expected, "serve, edge bundle, MLflow"
    rows = rows_of_csv(path.read_bytes())
    assert {name: [row[name] for row in rows] for name in expected} == sent, "feedback"


REFUSED = {
    "a short row": "a,b\n1,x\n2\n",
    "a long row": "a,b\n1,x\n2,y,z\n",
    "a row of spaces": "a,b\n1,x\n  \n",
    "an open quote": 'a,b\n1,x\n2,"y\n',
    "an open quote in the header": 'a,"b\n1,x\n2,y\n',
    "two columns of one name": "a,a\n1,x\n",
    "no rows": "a,b\n",
    "nothing": "",
    "blank lines alone": "\n\n\n",
    "no UTF-8": "a,b\n1,\udcff\n",
}


def _all_rows(path: Path) -> None:
    column_names(path)
    if not list(row_batches(data_files(path), {}, 10)):
        raise DataError("no rows")


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize(
    "door",
    [read_source, _all_rows, lambda path: csv_columns(path.read_bytes()), lambda path: rows_of_csv(path.read_bytes())],
    ids=["new, ingest", "predict, label", "serve, edge bundle", "feedback"],
)
def test_what_one_door_refuses_no_door_takes(name: str, door: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(REFUSED[name].encode("utf-8", "surrogateescape"))
    with pytest.raises((DataError, RowError)):
        door(path)


def _parquet(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def _same_in_folders(folder: Path, expected: Cells) -> None:
    table, cells = trained(folder)
    assert cells == expected, "new and ingest"
    assert predicted(folder, {field.name: field.type for field in table.schema}) == expected, "predict"
    assert predicted(folder, {field.name: pa.string() for field in table.schema}) == expected, "label"


@pytest.mark.parametrize(
    "hidden",
    [".ipynb_checkpoints/a-checkpoint", "_temporary/0/a", "._a", "_delta_log/a", "b/.tmp/a", "a.predictions"],
)
def test_hidden_files_and_predictions_are_no_rows_through_any_door(tmp_path: Path, hidden: str) -> None:
    _parquet(tmp_path / "_of_mine" / "a.parquet", a=["x", "y"])
    _parquet(tmp_path / "_of_mine" / f"{hidden}.parquet", a=["x", "y"])
    (tmp_path / "_of_mine" / "_SUCCESS").touch()
    _same_in_folders(tmp_path / "_of_mine", {"a": ["x", "y"]})


def test_partitions_are_columns_through_every_door(tmp_path: Path) -> None:
    for place in ("city=Oslo/year=2023", "city=S%C3%A3o%20Paulo/year=2024", "city=__HIVE_DEFAULT_PARTITION__/year=-1"):
        _parquet(tmp_path / place / "part-0.parquet", a=["x", "y"])
    cities = ["Oslo", "Oslo", "São Paulo", "São Paulo", None, None]
    years = ["2023", "2023", "2024", "2024", "-1", "-1"]
    table, cells = trained(tmp_path)
    assert cells == {"a": ["x", "y"] * 3, "city": cities, "year": years}
    assert table.schema.field("year").type == pa.int64()
    types = {field.name: field.type for field in table.schema}
    assert predicted(tmp_path, types) == cells
    arrow = ds.dataset(tmp_path, partitioning="hive").to_table()
    assert arrow.select(["a", "city", "year"]).cast(table.schema) == table


def test_a_folder_of_csv_is_a_table_through_every_door(tmp_path: Path) -> None:
    for day, text in enumerate(("a;b\n1;x\n", "a,b\n1.5,y\n")):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "a.csv").write_text(text)
    table, cells = trained(tmp_path)
    assert cells == {"a": ["1", "1.5"], "b": ["x", "y"], "day": ["0", "1"]}
    types = {field.name: field.type for field in table.schema}
    assert predicted(tmp_path, types) == cells


def test_files_of_two_kinds_are_refused_by_every_door(tmp_path: Path) -> None:
    _parquet(tmp_path / "a.parquet", a=["x"])
    (tmp_path / "b.csv").write_text("a\nx\n")
    for door in (read_source, data_files):
        with pytest.raises(DataError, match=r"1 Parquet files, such as a\.parquet, and 1 of CSV, such as b\.csv"):
            door(tmp_path)
    (tmp_path / "b.csv").rename(tmp_path / "_b.csv")
    _same_in_folders(tmp_path, {"a": ["x"]})


@pytest.mark.parametrize("values", [["x", None, "x"], [7, None, 7]], ids=["texts", "numbers"])
def test_pandas_categories_are_their_values_through_every_door(values: list[Any], tmp_path: Path) -> None:
    column = pa.array(values)
    _parquet(tmp_path / "a.parquet", a=column.dictionary_encode())
    table = pa.table({"a": column.dictionary_encode()})
    for source in (tmp_path, tmp_path / "a.parquet", table, table.to_pandas()):
        assert read_source(source).column("a").to_pylist() == values, "new and ingest"
    expected: Cells = {"a": [None if value is None else str(value) for value in values]}
    assert predicted(tmp_path, {"a": column.type}) == expected, "predict"


def test_views_are_texts_through_every_door(tmp_path: Path) -> None:
    _parquet(tmp_path / "a.parquet", a=pa.array(["x", None], pa.string_view()))
    for path in (tmp_path, tmp_path / "a.parquet"):
        _same_in_folders(path, {"a": ["x", None]})
        assert read_source(path).schema.field("a").type == pa.string()


def test_lines_of_text_are_the_same_through_every_door(tmp_path: Path) -> None:
    for name in ("a.txt", "b.text"):
        (tmp_path / name).write_bytes(b'\xef\xbb\xbfone, "two"\r\n\n\x1fthree\rfour\x0cfive\n NA\n')
    lines = ['one, "two"', "", "\x1fthree\rfour\x0cfive", " NA"]
    for path in (tmp_path, tmp_path / "b.text"):
        texts = read_source(path).column("text").to_pylist()
        (rows,) = row_batches(data_files(path), {}, 100)
        assert texts == rows.column("text").to_pylist() == (lines * 2 if path.is_dir() else lines)


@pytest.mark.parametrize("ids", [["00001", "00002"], ["1", "2"], ["1001.0", "7"], ["9" * 25, "9" * 24 + "8"]])
def test_an_id_has_one_spelling_through_every_door(ids: list[str], tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,x,y\n" + "".join(f"{key},1.5,1\n" for key in ids))
    data = Data(source="rows.csv", target="y", id="key")
    source = ingest(Spec(name="a", data=data), tmp_path, tmp_path / "cache")
    (rows,) = row_batches([path], {}, 10)  # as `predict --id` and `label` read it
    asked = own_ids(rows.column("key"), SortedHashSet(), 1, "rows.csv", "key")
    logged = pa.table({"id": asked, "at": pa.array([0, 0], pa.timestamp("us")), "label": ["1", "2"]})
    logged = logged.append_column("raw.x", pa.array([1.5, 1.5]))
    for name in ("version", "labelled_at", "by"):
        logged = logged.append_column(name, pa.array(["1", "1"]))
    assert with_feedback(source, logged, data).known == 2
    sent = [row["key"] for row in rows_of_csv(path.read_bytes())]
    assert sent == ids == asked.to_pylist(), "feedback, predict, label"


def test_na_is_a_text_through_every_door_where_the_spec_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('country,city,x,y\nNA,NA,NA,1\n"null",Rome,1.5,2\n,,,3\n"",nan,2,4\n')
    data = Data(source="rows.csv", target="y", na_is_text=["country"])
    countries, cities = ["NA", "null", None, None], [None, "Rome", None, None]
    table = ingest(Spec(name="a", data=data), tmp_path, tmp_path / "cache")
    assert table.to_pydict() == {"country": countries, "city": cities, "x": [None, 1.5, None, 2.0], "y": [1, 2, 3, 4]}
    types = {field.name: field.type for field in table.schema}
    (rows,) = row_batches([path], types, 10, na_is_text=["country"])
    assert rows == table, "predict"
    (rows,) = row_batches([path], {}, 10, na_is_text=["country"])
    assert [rows.column(name).to_pylist() for name in ("country", "city")] == [countries, cities], "label"
    cells = csv_columns(path.read_bytes(), ["country"])
    assert (cells["country"], cells["city"], number_cells(cells["x"])) == (countries, cities, [None, 1.5, None, 2.0])
    assert [row["country"] for row in rows_of_csv(path.read_bytes(), ["country"])] == countries, "feedback"
    _, preparation = prepare_table(pa.concat_tables([table] * 10), Spec(name="a", data=data), tmp_path)
    (country,) = [part for part in preparation.of(CategoricalInput) if part.name == "country"]
    assert country.categories == ["NA", "null"], "prepare"
    sent = scoring_of_csv(path.read_bytes()).rows(input_schema(preparation))
    assert sent.feed["country"].tolist() == ["NA", "null", "", ""], "serve"
    with pytest.raises(DataError, match=r"data\.na_is_text: no column 'land'"):
        check_names(["country", "y"], data.model_copy(update={"na_is_text": ["land"]}))
