import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import DataError
from models.sources.mapped import mapped_table
from models.sources.read import read_table, write_table


def test_a_mapped_table_is_the_table_and_leaves_no_file(tmp_path):
    texts = pa.array(["a", None, "ü"] * 100)
    table = pa.table(
        {"x": np.arange(300.0), "c": texts, "d": texts.dictionary_encode(), "l": pa.array([[1.0, 2.0]] * 300)}
    )
    write_table(table, tmp_path / "rows.parquet")
    mapped = mapped_table(tmp_path / "rows.parquet", large=10)
    assert mapped.equals(read_table(tmp_path / "rows.parquet"))
    assert mapped.schema == read_table(tmp_path / "rows.parquet").schema
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_dictionaries_that_differ_between_row_groups_are_mapped(tmp_path):
    first, second = (pa.table({"c": pa.array(texts).dictionary_encode()}) for texts in (["a", "b"], ["z", "a"]))
    with pq.ParquetWriter(tmp_path / "rows.parquet", first.schema) as writer:
        writer.write_table(first)
        writer.write_table(second)
    assert mapped_table(tmp_path / "rows.parquet", large=1).column("c").to_pylist() == ["a", "b", "z", "a"]


def test_a_file_that_is_cut_short_is_told(tmp_path):
    write_table(pa.table({"x": np.arange(300.0)}), tmp_path / "rows.parquet")
    content = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "rows.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="cut short"):
        mapped_table(tmp_path / "rows.parquet", large=1)
