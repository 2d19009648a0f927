"""What separates values, found alike by what reads a whole table and by what reads it in batches."""

import gzip

import pyarrow as pa
import pytest

from models.sources.delimiter import csv_rows, delimiter_in
from models.sources.packed import delimiter_of, suffix_of
from models.sources.read import read_source
from models.sources.row_batches import row_batches


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_shows_what_separates_the_values(tmp_path, separator):
    path = tmp_path / "a.csv"
    rows = [['"size, kg; net"', "n"], ["1.5", '"a,b"'], ["2.5", "c"]]
    path.write_text("\n".join(separator.join(row) for row in rows) + "\n")
    assert read_source(path).to_pylist() == [{"size, kg; net": 1.5, "n": "a,b"}, {"size, kg; net": 2.5, "n": "c"}]
    (batch,) = row_batches([path], {"size, kg; net": pa.float64()}, 10)
    assert batch.to_pylist() == read_source(path).to_pylist()


@pytest.mark.parametrize(
    ("name", "content", "delimiter"),
    [
        ("a.csv", b"x\n1;2\n", ","),
        ("a.csv", b"", ","),
        ("a.tsv", b"x,y\n", "\t"),
        ("a.csv", b"x,y;z,u\n", ","),
        ("a.csv.gz", gzip.compress(b"x;y\n1,5;2\n"), ";"),
    ],
)
def test_in_doubt_it_is_what_the_name_says(tmp_path, name, content, delimiter):
    (tmp_path / name).write_bytes(content)
    assert delimiter_of(tmp_path / name) == delimiter
    assert suffix_of(tmp_path / name) == f".{name.split(chr(46))[1]}"


def test_blank_lines_a_mark_and_quotes_are_no_header():
    assert delimiter_in(b'\xef\xbb\xbf\r\n\n"a,\nb";c\n1,5;2\n') == ";"
    assert list(csv_rows('"a,\nb";c\n\n1;"x""y"\r', ";")) == [["a,\nb", "c"], ["1", 'x"y']]
