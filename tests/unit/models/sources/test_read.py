import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import DataError
from models.sources.read import read_source, read_table, refuse_shared_names, write_table


def test_csv_types_come_from_all_rows_and_empty_fields_are_missing(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y,z\n1,a,2020-01-01\n,NA,2020-01-02\n2.5,,2020-01-03\n")
    table = read_source(path)
    assert table.column("x").to_pylist() == [1.0, None, 2.5]
    assert table.column("y").to_pylist() == ["a", None, None]
    assert pa.types.is_temporal(table.schema.field("z").type)


def test_tsv_and_gzip_are_read(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"x,y\n1,2\n"))
    for name in ("a.tsv", "b.csv.gz"):
        assert read_source(tmp_path / name).to_pylist() == [{"x": 1, "y": 2}]


def test_decimal_commas_are_told_not_taken_for_categories(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x;code\n1,5;12345678901234567890123\n2;3\n;4\n")
    with pytest.raises(
        DataError, match=r"column 'x' has decimal commas, such as '1,5': say `decimal_commas: \[x\]` below data"
    ):
        read_source(path)
    assert read_source(path, as_text=["x"]).column("x").to_pylist() == ["1,5", "2", None]
    path.write_text(path.read_text().replace("1,5", "1.5"))
    assert read_source(path).column("x").to_pylist() == [1.5, 2.0, None]


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(b"x,y\n" + b"1,2\n" * 5000)[:40]])
def test_a_damaged_gzip_file_is_told(tmp_path, content):
    (tmp_path / "a.csv.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.csv\.gz: cannot be unpacked .*; copy it again"):
        read_source(tmp_path / "a.csv.gz")


def test_a_folder_of_parquet_is_one_table_in_the_order_of_its_names(tmp_path):
    pq.write_table(pa.table({"x": [2]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    assert read_source(tmp_path).column("x").to_pylist() == [1, 2]


def test_files_of_different_types_are_refused_by_name(tmp_path):
    pq.write_table(pa.table({"x": [2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": ["two"]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: column 'x' is string, but int64 in a\.parquet"):
        read_source(tmp_path)


def test_bytes_that_are_not_utf8_are_told_with_line_and_offset(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("name,x\nAnna,1\nJosé,2\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.csv:3: byte 0xe9 at offset 17 is not UTF-8.*iconv"):
        read_source(path)


def test_utf8_that_a_block_boundary_cuts_is_fine(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"name\n" + b"a" * ((1 << 20) - 6) + "é\n".encode() + b"\xe9\n")
    with pytest.raises(DataError, match=r"a\.csv:3: byte 0xe9 at offset 1048578"):
        read_source(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("a,b\n", "2 columns and no rows"),
        ("a,b\n1,2\n1,2,3\n", r"row 2 \(the first under the header is row 1\): Expected 2 columns, got 3"),
        ("a,b,a\n1,2,3\n", r"share a name: 'a' \(columns 1, 3\)"),
        ("a,b,a\n0.5,2,3.5\n", r"share a name: 'a' \(columns 1, 3\)"),
        ("a,\n1,2\n", "column 2 has no name"),
        ("a,__row\n1,2\n", "that Loopline uses itself"),
        ("a,__slice:a\n1,2\n", "that Loopline uses itself"),
        ("a,__position\n1,2\n", "that Loopline uses itself"),
    ],
)
def test_a_bad_csv_is_refused_with_the_file_and_the_reason(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_source(path)
    assert str(path) in str(caught.value)


def test_parquet_cut_short_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": range(1000)}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"a\.parquet: got \d+ bytes that are no whole Parquet file.*again"):
        read_source(path)


def test_parquet_whose_names_or_texts_are_not_utf8_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"town": ["x"]}), path)
    path.write_bytes(path.read_bytes().replace(b"town", b"t\xffwn"))
    with pytest.raises(DataError, match=r"a\.parquet: got \d+ bytes that are no whole Parquet file \('utf-8' codec"):
        read_source(path)
    latin = pa.array([b"tea", b"caf\xe9"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, latin.buffers())
    pq.write_table(pa.table({"town": texts}), path)
    with pytest.raises(
        DataError, match=r"a\.parquet: column 'town' .*Invalid UTF8.*: write it again, with texts as UTF-8"
    ):
        read_source(path)


def test_missing_files_and_unknown_formats_are_refused(tmp_path):
    (tmp_path / "a.docx").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no such file or folder"):
        read_source(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match=r"got a \.docx file, expected"):
        read_source(tmp_path / "a.docx")
    with pytest.raises(DataError, match=r"got no file to read in it, expected"):
        read_source(tmp_path / "empty")


def test_a_data_frame_becomes_a_table_without_its_index():
    frame = pd.DataFrame({"x": [1, 2]}, index=[7, 9])
    assert read_source(frame).column_names == ["x"]


def test_a_data_frame_with_mixed_types_or_shared_names_is_refused():
    with pytest.raises(DataError, match="a column mixes types"):
        read_source(pd.DataFrame({"x": [1, "a", b"b"]}))
    with pytest.raises(DataError, match="share a name: 'x'"):
        read_source(pd.DataFrame([[1, 2]], columns=["x", "x"]))


def test_a_parquet_file_with_shared_names_is_not_called_damaged(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.5]), pa.array([2.5])], names=["x", "x"])
    pq.write_table(table, tmp_path / "t.parquet")
    for source in (tmp_path / "t.parquet", tmp_path):
        with pytest.raises(DataError, match=r"t\.parquet: several columns share a name: 'x' \(columns 1, 2\)"):
            read_source(source)


class CountedName(str):
    """A name that counts how often it is compared."""

    num_comparisons = 0

    def __eq__(self, other):
        CountedName.num_comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_shared_names_of_2000_columns_are_sought_without_comparing_each_with_each():
    CountedName.num_comparisons = 0
    refuse_shared_names([CountedName(f"x{number}") for number in range(2000)], "wide.csv")
    assert CountedName.num_comparisons <= 2000


def test_anything_else_is_refused():
    with pytest.raises(DataError, match="got a list, expected a pandas DataFrame"):
        read_source([1, 2], display_name="./source.py:load")


def test_a_table_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "a.parquet"
    write_table(pa.table({"x": [1, 2]}), path)
    assert read_table(path, ["x"]).num_rows == 2
    assert list(path.parent.iterdir()) == [path]


def test_columns_that_arrow_cannot_hold_are_told():
    for column in (pd.arrays.SparseArray([0, 0, 1]), [2**70, 1, 2]):
        with pytest.raises(DataError, match="the source's table: a column cannot be read"):
            read_source(pd.DataFrame({"x": column}))


def test_views_of_text_are_text_and_half_floats_are_floats():
    table = pa.table({"x": pa.array(["a", None], pa.string_view()), "y": np.array([1, 2], np.float16), "z": [1, 2]})
    assert read_source(table).schema == pa.schema({"x": pa.string(), "y": pa.float32(), "z": pa.int64()})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.period_range("2020", periods=2, freq="M"), [600, 601]),
        (pd.interval_range(0, 2), [{"left": 0, "right": 1}, {"left": 1, "right": 2}]),
    ],
    ids=["periods", "intervals"],
)
def test_types_of_pandas_own_are_what_they_store(values, expected, tmp_path):
    frame = pd.DataFrame({"x": values})
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (tmp_path / "a.parquet", frame):
        assert read_source(source).column("x").to_pylist() == expected


def test_a_file_that_loopline_writes_is_small_and_in_groups(tmp_path):
    num, path = 300_000, tmp_path / "a.parquet"
    times = pa.array(np.arange(num), pa.timestamp("s"))
    towns = pa.array([f"town {number}" for number in range(20_000)]).take(pa.array(np.arange(num) * 7919 % 20_000))
    write_table(pa.table({"at": times, "town": towns}), path)
    assert path.stat().st_size < 2.3 * num  # a place in a dictionary takes two bytes
    assert pq.read_metadata(path).num_row_groups == 2
    assert read_table(path).column("town").equals(pa.chunked_array([towns]))
    write_table(pa.table({"pixels": pa.array([bytes(1 << 20)] * 66)}), path)
    assert pq.read_metadata(path).num_row_groups == 2
