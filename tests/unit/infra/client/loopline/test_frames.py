"""Frames of every library become Parquet, and the answer comes back in the same library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopline import LooplineError
from loopline.frames import as_file


def written(frame: Any) -> pa.Table:
    with as_file(frame) as (path, _):
        assert path
        return pq.read_table(path)


def answered(frame: Any, tmp_path: Path) -> Any:
    answer = tmp_path / "answer.parquet"
    pq.write_table(pa.table({"label": ["yes", "no"]}), answer)
    with as_file(frame) as (_, read):
        assert read
        return read(str(answer))


class Stream:
    """A frame of a library that Loopline does not know."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


TABLE = pa.table({"x": [1, 2], "c": ["a", None]})


@pytest.mark.parametrize("frame", [TABLE, Stream(TABLE)], ids=["pyarrow", "stream"])
def test_arrow_goes_and_comes_as_arrow(frame: Any, tmp_path: Path) -> None:
    assert written(frame).equals(TABLE)
    assert answered(frame, tmp_path).column("label").to_pylist() == ["yes", "no"]


def test_a_frame_of_pandas_keeps_its_index_in_the_answer(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "c": ["a", None, "b"]})[lambda rows: rows.x != 2]
    assert written(frame).column_names == ["x", "c"]
    answer = answered(frame, tmp_path)
    assert frame.assign(label=answer.label).label.tolist() == ["yes", "no"]


def test_an_index_with_a_name_is_a_column() -> None:
    frame = pd.DataFrame({"x": [1, 2]}, index=pd.Index(["u", "v"], name="customer"))
    assert written(frame).column("customer").to_pylist() == ["u", "v"]
    levels = pd.MultiIndex.from_arrays([["u", "v"], [1, 2]], names=["customer", None])
    assert written(frame.set_index(levels)).column_names == ["x", "customer"]


def test_a_class_derived_from_a_frame_is_a_frame() -> None:
    class Own(pd.DataFrame):
        pass

    assert written(Own({"x": [1]})).column_names == ["x"]


def test_the_same_frame_is_the_same_file() -> None:
    frame = pd.DataFrame({"x": [1, 2], "c": ["a", "b"]})
    contents = []
    for _ in range(2):
        with as_file(frame.copy()) as (path, _read):
            contents.append(Path(str(path)).read_bytes())
    assert contents[0] == contents[1]


def test_polars_writes_and_reads_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars is not among our libraries: what is called of it is its documented interface."""

    class DataFrame:
        columns = ("x",)

        def lazy(self) -> DataFrame:
            return self

        def collect(self) -> DataFrame:
            return self

        def write_parquet(self, path: str) -> None:
            pq.write_table(pa.table({"x": [1]}), path)

    DataFrame.__module__ = "polars.dataframe.frame"
    module = type(sys)("polars")
    module.read_parquet = lambda path: ("polars", path)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", module)
    assert written(DataFrame()).column("x").to_pylist() == [1]
    assert answered(DataFrame(), tmp_path)[0] == "polars"


def test_a_path_is_read_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("a.csv", Path("a.csv")):
        with as_file(path) as (given, read):
            assert (given, read) == (str(tmp_path / "a.csv"), None)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (None, "frame: got NoneType, expected a frame"),
        ([1, 2], "frame: got list, expected a frame of pandas, polars or pyarrow"),
        (pd.Series([1]), "frame: got Series, expected a frame"),
        (pd.DataFrame({"x": [1, "a"]}), "cannot be written as Parquet .*column x.*: give each column"),
    ],
    ids=["none", "list", "series", "mixed"],
)
def test_what_is_no_frame_is_one_line_with_its_cure(frame: Any, message: str) -> None:
    with pytest.raises(LooplineError, match=message), as_file(frame):
        pass


def test_pandas_without_pyarrow_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "fastparquet", None)
    message = r"^frame: [^\n]*`pip install pyarrow`[^\n]*$"
    with pytest.raises(LooplineError, match=message), as_file(pd.DataFrame({"x": [1]})):
        pass


def test_a_message_names_the_frame_and_not_its_file() -> None:
    with pytest.raises(LooplineError, match=r"^the frame: no column"), as_file(TABLE) as (path, _):
        raise LooplineError(f"{path}: no column")
