"""The files of a folder that are rows, and the columns that its folders name."""

from pathlib import Path

import pyarrow as pa
import pytest

from models.errors import DataError
from models.sources.folders import data_files, partition_of, partition_types, visible_files, with_partitions


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n1\n")


def _names(folder: Path, files: list[Path]) -> list[str]:
    return [str(file.relative_to(folder)) for file in files]


def test_a_folder_is_its_visible_files_by_name(tmp_path: Path) -> None:
    _touch(
        tmp_path, "b.csv", "c/a.csv", ".b.csv", "_temporary/a.csv", "c/.x/a.csv", "_x=1/a.csv", "b.predictions.parquet"
    )
    (tmp_path / "note.md").write_text("not data")
    assert _names(tmp_path, data_files(tmp_path)) == ["_x=1/a.csv", "b.csv", "c/a.csv"]
    assert _names(tmp_path, visible_files(tmp_path)) == ["_x=1/a.csv", "b.csv", "c/a.csv", "note.md"]


def test_the_place_of_a_folder_hides_nothing(tmp_path: Path) -> None:
    _touch(tmp_path / ".cache" / "_data", "a.csv")
    assert data_files(tmp_path / ".cache" / "_data") == [tmp_path / ".cache" / "_data" / "a.csv"]


def test_texts_beside_tables_are_read_where_lines_are_rows(tmp_path: Path) -> None:
    _touch(tmp_path, "a.csv", "readme.txt")
    assert _names(tmp_path, data_files(tmp_path)) == ["a.csv"]
    assert _names(tmp_path, data_files(tmp_path, is_text=True)) == ["readme.txt"]
    (tmp_path / "a.csv").unlink()
    assert _names(tmp_path, data_files(tmp_path)) == ["readme.txt"]


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    _touch(tmp_path, "a.xml", "mixed/a.csv", "mixed/b.parquet", "empty/.a.csv")
    for name, words in (
        ("gone.csv", "no such file or folder"),
        ("a.xml", r"got a \.xml file, expected a \.csv"),
        ("mixed", r"1 Parquet files, such as b\.parquet, and 1 of CSV, such as a\.csv, expected files of one kind"),
        ("empty", r"got no file to read in it.*names with \. or _ in front are none"),
    ):
        with pytest.raises(DataError, match=words):
            data_files(tmp_path / name)


def test_folders_name_columns_in_hives_form() -> None:
    folder = Path("/env=prod/data")
    file = folder / "a=1" / "plain" / "b%2Fc=x%20y" / "d=__HIVE_DEFAULT_PARTITION__" / "part=0.csv"
    assert partition_of(file, folder) == {"a": "1", "b/c": "x y", "d": None}
    types = partition_types([{"a": "1", "b": "1", "c": None}, {"a": "-02", "b": "x", "c": None}, {"a": None}])
    assert types == {"a": pa.int64(), "b": pa.string(), "c": pa.string()}


def test_the_columns_of_a_file_itself_win() -> None:
    table = with_partitions(pa.table({"a": [7.5, 8.5]}), {"a": "1", "b": "2", "c": "x"}, {"b": pa.float64()})
    assert table.to_pydict() == {"a": [7.5, 8.5], "b": [2.0, 2.0], "c": ["x", "x"]}
    with pytest.raises(DataError, match="folder b=x: expected double: correct the folder's name"):
        with_partitions(pa.table({"a": [1]}), {"b": "x"}, {"b": pa.float64()})
