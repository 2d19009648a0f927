"""Files are read a batch at a time: the same rows whatever the size, and mistakes named by file, line and column."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DataError
from models.sources.folders import data_files
from models.sources.row_batches import column_names, concatenated, count_rows, row_batches, sized

TYPES = {"x": pa.float64()}


def test_csv_tsv_and_parquet_give_the_same_batches(tmp_path):
    (tmp_path / "a.csv").write_text("x,name\n1,a\n,b\n3.5,NA\n")
    (tmp_path / "a.tsv").write_text("x\tname\n1\ta\n\tb\n3.5\t\n")
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("x,name\n1,a\n,b\n3.5,\n")
    table = pa.table({"x": [1.0, None, 3.5], "name": ["a", "b", None]})
    pq.write_table(table, tmp_path / "a.parquet")
    for name in ("a.csv", "a.tsv", "a.csv.gz", "a.parquet"):
        path = tmp_path / name
        batches = list(row_batches([path], TYPES, 2))
        assert [batch.num_rows for batch in batches] == [2, 1], name
        assert pa.concat_tables(batches).to_pydict() == table.to_pydict(), name
        assert column_names(path) == ["x", "name"]
        assert count_rows(path) == 3


def test_a_column_without_a_given_type_is_text(tmp_path):
    (tmp_path / "a.csv").write_text("id,flag\n007,true\n")
    (batch,) = row_batches([tmp_path / "a.csv"], {}, 10)
    assert batch.to_pylist() == [{"id": "007", "flag": "true"}]


def test_lines_of_text_are_rows(tmp_path):
    (tmp_path / "a.txt").write_text('one, "two"\n\nthree\n')
    (batch,) = row_batches([tmp_path / "a.txt"], {}, 10)
    assert batch.column("text").to_pylist() == ['one, "two"', "", "three"]
    assert count_rows(tmp_path / "a.txt") == 3


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "x,y\n1,2\noops,3\n", r"a\.csv: row 2, column 'x': expected double: invalid value 'oops'"),
        ("a.csv", "x,y\n1,2\n3\n", r"row 2 \(the first under the header is row 1\): Expected 2 columns, got 1"),
        ("a.csv", "x,x\n1,2\n", r"several columns share a name: 'x' \(columns 1, 2\)"),
        ("a.csv", "", "the file is empty"),
        ("a.parquet", "no parquet", r"a\.parquet: cannot be read"),
        ("a.xml", "{}", r"got a \.xml file, expected a \.csv"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(tmp_path, name, content, told):
    def read(path):
        for one in data_files(path):
            column_names(one)
            list(row_batches([one], TYPES, 10))

    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=told):
        read(tmp_path / name)


def test_parquet_whose_names_or_texts_are_not_utf8_is_told(tmp_path):
    path = tmp_path / "a.parquet"
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"tea", b"caf\xe9"], pa.binary()).buffers())
    pq.write_table(pa.table({"town": texts}), path)
    with pytest.raises(
        DataError, match=r"a\.parquet: column 'town' .*Invalid UTF8.*: write it again, with texts as UTF-8"
    ):
        list(row_batches([path], {}, 1000))
    path.write_bytes(path.read_bytes().replace(b"town", b"t\xffwn"))
    for reading in (column_names, count_rows, lambda damaged: list(row_batches([damaged], {}, 1000))):
        with pytest.raises(DataError, match=r"a\.parquet: cannot be read \('utf-8' codec"):
            reading(path)


@given(st.lists(st.integers(0, 7), max_size=12), st.integers(1, 9))
def test_sized_keeps_rows_and_order(sizes, rows):
    tables, first = [], 0
    for size in sizes:
        tables.append(pa.table({"n": list(range(first, first + size))}, schema=pa.schema({"n": pa.int64()})))
        first += size
    found = list(sized(iter(tables), rows))
    assert [n for table in found for n in table.column("n").to_pylist()] == list(range(first))
    assert all(table.num_rows == rows for table in found[:-1])


def test_a_column_of_two_types_becomes_text():
    found = concatenated([pa.table({"a": [1.5], "b": [1]}), pa.table({"a": ["x"]}), pa.table({"a": [None]})])
    assert found.to_pydict() == {"a": ["1.5", "x", None], "b": [1, None, None]}


def test_lists_and_structs_beside_text_become_json():
    """As a batch logs the source's own types, and a server what JSON has."""
    nested = pa.table({"l": [[1, 2], None], "s": [{"a": b"\x01"}, {"a": None}]})
    found = concatenated([nested, pa.table({"l": ["[3]"], "s": ['{"a": null}']})])
    assert found.column("l").to_pylist() == ["[1, 2]", None, "[3]"]
    assert found.column("s").to_pylist() == ['{"a": "AQ=="}', '{"a": null}', '{"a": null}']
