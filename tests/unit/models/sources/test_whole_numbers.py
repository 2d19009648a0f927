"""Whole numbers that a float64 does not hold are not rounded on their way."""

import pandas as pd
import pyarrow as pa
import pytest

from models.sources.read import read_source
from models.sources.whole_numbers import are_codes, as_frame, fits_float64


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_whole_numbers_of_64_bits_are_read_unrounded(tmp_path, name):
    tab = "\t" if name.endswith("tsv") else ","
    rows = [["h", "i", "f", "x"], [2**64 - 1, 2**53 + 1, 1e20, 1.5], [2**64 - 2, 2**53, 3, 2**60], ["", "", "", ""]]
    (tmp_path / name).write_text("\n".join(tab.join(map(str, row)) for row in rows))
    table = read_source(tmp_path / name)
    assert table.column("h").to_pylist() == [2**64 - 1, 2**64 - 2, None]
    assert table.column("i").to_pylist() == [2**53 + 1, 2**53, None]
    assert [str(table.schema.field(column).type) for column in "fx"] == ["double", "double"]


def test_numbers_beyond_64_bits_stay_floats(tmp_path):
    (tmp_path / "a.csv").write_text("h,x\n18446744073709551616,1\n5,2\n")
    assert read_source(tmp_path / "a.csv").column("h").to_pylist() == [2.0**64, 5.0]


@pytest.mark.parametrize(
    ("cells", "ids"),
    [
        (["00001", "2", ""], ["00001", "2", None]),
        (["00001", "1001.0", "1.50"], ["00001", "1001", "1.50"]),
        (["1234567890123456789012345", "1234567890123456789012346"],) * 2,
        (["7", "0"], [7, 0]),
        (["1001.0", "2"], [1001.0, 2.0]),
        (["18446744073709551615", "3"], [2**64 - 1, 3]),
    ],
)
def test_an_id_loses_no_digit(tmp_path, cells, ids):
    (tmp_path / "a.csv").write_text("".join(f"{cell},{row}\n" for row, cell in enumerate(["key", *cells])))
    table = read_source(tmp_path / "a.csv", id_column="key")
    assert table.column("key").to_pylist() == ids
    assert read_source(tmp_path / "a.csv").schema.field("key").type != pa.string(), "a column that is no id"


def test_ids_are_text_in_each_file_of_a_folder_if_they_are_in_one(tmp_path):
    (tmp_path / "a.csv").write_text("key,x\n1,1\n")
    (tmp_path / "b.csv").write_text("key,x\n01,2\n")
    assert read_source(tmp_path, id_column="key").to_pylist() == [{"key": "1", "x": 1}, {"key": "01", "x": 2}]


def test_a_frame_keeps_large_whole_numbers_beside_missing_ones():
    table = pa.table(
        {
            "large": [2**53 + 1, None],
            "hash": pa.array([2**64 - 1, None], pa.uint64()),
            "small": [1, None],
            "whole": [2**53 + 1, 2**53],
        }
    )
    frame = as_frame(table)
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "UInt64", "float64", "int64"]
    assert pa.Table.from_pandas(frame, preserve_index=False).column("large").to_pylist() == [2**53 + 1, None]
    assert pd.isna(frame["hash"][1])


def test_only_whole_numbers_up_to_2_to_the_53_fit():
    assert fits_float64(pa.chunked_array([[2**53, -(2**53), None]]))
    assert not fits_float64(pa.chunked_array([[2**53 + 1]]))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["05123", "80331", None], True),
        (["51230", "80331"], False),
        (["05123", "8033"], False),
        (["05123", "A8033"], False),
        (["01", "12"], False),
        ([None, None], False),
    ],
    ids=["codes", "no zero first", "two lengths", "letters", "months", "nothing"],
)
def test_codes_are_digits_of_one_length_with_a_zero_first(texts, expected):
    assert are_codes(pa.chunked_array([pa.array(texts, pa.string())])) is expected
