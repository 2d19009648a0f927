"""The files of a folder that are data, and the columns that its folders name: `city=Oslo/part-0.parquet`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pyarrow as pa

from models.errors import DataError
from models.sources.delimiter import PARQUET, SUFFIXES, TEXT
from models.sources.formats import FORMATS, IN_FOLDERS
from models.sources.packed import split_part, suffix_of
from models.sources.picture_folders import SUFFIXES as PICTURES
from models.sources.picture_folders import is_of_classes
from models.sources.readers.delta import delta_files, is_delta

READABLE = (
    "a .csv, .tsv, .txt or .jsonl file (also .gz, .bz2, .xz, .zst or .zip), a .parquet, .feather or .arrow file, a "
    "workbook (.xlsx, .xls, .ods), a folder of one of these or of pictures, a Delta table, or a .json file"
)
_HIDDEN = (".", "_")
"""Beginnings of names that are no data: `.ipynb_checkpoints`, `_temporary`, `_SUCCESS`.
Source: `ignore_prefixes` of pyarrow.dataset; Hive, Spark and Dask do the same."""
PREDICTIONS = ".predictions.parquet"
"""The end of the names that `loopline predict` gives its outputs, beside the rows that it reads."""
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def visible_files(folder: Path) -> list[Path]:
    """Return the files under a folder that may be data, sorted by path.

    Names with `.` or `_` in front are hidden (a partition `_x=1` is not), and predictions are no data.
    """
    files = []
    for parent, folders, names in os.walk(folder):  # rglob makes a Path of each entry
        folders[:] = [name for name in folders if not is_hidden(name)]
        files += [Path(parent, name) for name in names if not is_hidden(name) and not name.endswith(PREDICTIONS)]
    return sorted(path for path in files if path.is_file())


def data_files(source: Path, *, is_text: bool = False) -> list[Path]:
    """Return the file, or the files of the folder that are its rows.

    Args:
        source: A file or folder.
        is_text: Whether the rows are lines of text; else those of a folder are its tables, its pictures if it has none,
            or its texts.

    Raises:
        DataError: The path does not exist, is a file of another kind, or is a folder without such files, or with both
            Parquet and CSV.
    """
    if not split_part(source).file.exists():
        raise DataError(f"{source}: no such file or folder: correct the path, or put the data there")
    if not source.is_dir():
        if suffix_of(source) not in (*SUFFIXES, *PARQUET, *TEXT, *FORMATS):
            raise DataError(f"{source}: got a {source.suffix or 'nameless'} file, expected {READABLE}: convert it")
        return [source]
    if is_delta(source) and not is_text:
        return delta_files(source)
    files = visible_files(source)
    _refuse_iceberg(source)
    parquet, csv, text, pictures, further = _by_kind(files, (PARQUET, SUFFIXES, TEXT, PICTURES, IN_FOLDERS))
    if is_text:
        parquet, csv, further, pictures = [], [], [], []
    if is_of_classes(_below(source, pictures), _below(source, parquet or csv or further)):
        return pictures
    if parquet and csv:
        raise DataError(
            f"{source}: got {len(parquet)} Parquet files, such as {parquet[0].name}, and {len(csv)} of CSV, such as "
            f"{csv[0].name}, expected files of one kind: move the others, or begin their names with _"
        )
    if not (parquet or csv or further or pictures or text):
        raise DataError(
            f"{source}: got no file to read in it, expected {READABLE}; names with . or _ in front are none"
        )
    return parquet or csv or further or pictures or text


def _below(folder: Path, files: Sequence[Path]) -> list[PurePosixPath]:
    return [PurePosixPath(path.relative_to(folder).as_posix()) for path in files]


def _by_kind(files: Sequence[Path], kinds: Sequence[tuple[str, ...]]) -> list[list[Path]]:
    """Return the files of each kind, which is a group of suffixes."""
    suffixes = [suffix_of(path) for path in files]
    return [[path for path, suffix in zip(files, suffixes, strict=True) if suffix in kind] for kind in kinds]


def _refuse_iceberg(folder: Path) -> None:
    """Refuse an Iceberg table: its folder holds files of earlier versions, which are no rows of it."""
    if next((folder / "metadata").glob("*.metadata.json"), None) is not None:
        raise DataError(
            f"{folder}: is an Iceberg table, which is not read: write its rows as Parquet or a Delta table, or read "
            "them by a source of your own (./source.py:load)"
        )


def partition_of(file: Path, folder: Path) -> dict[str, str | None]:
    """Return the columns and values that the folders between `folder` and a file name: `a=1/b=x%20y` in Hive's form."""
    parts = [part.partition("=") for part in file.relative_to(folder).parent.parts if "=" in part]
    return {unquote(name): None if value == _HIVE_NULL else unquote(value) for name, _, value in parts}


def with_partitions(
    table: pa.Table, values: Mapping[str, str | None], types: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """Append a file's partition columns, unless the file has them itself; a type that is not given is text.

    Raises:
        DataError: A value does not fit its column's type.
    """
    for name, value in values.items():
        if name in table.column_names:
            continue
        kind = (types or {}).get(name, pa.string())
        try:
            scalar = pa.scalar(value, pa.string()).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(f"folder {name}={value}: expected {kind}: correct the folder's name") from error
        table = table.append_column(name, pa.repeat(scalar, table.num_rows))
    return table


def partition_types(partitions: Sequence[Mapping[str, str | None]]) -> dict[str, pa.DataType]:
    """Return the types of the partition columns: whole numbers if all values are, else text."""
    types = {}
    for name in dict.fromkeys(name for values in partitions for name in values):
        texts = [value for values in partitions if (value := values.get(name)) is not None]
        is_whole = bool(texts) and all(_is_whole(text) for text in texts)
        types[name] = pa.int64() if is_whole else pa.string()
    return types


def is_hidden(name: str) -> bool:
    """Return whether the name of a file or folder says that it is no data."""
    return name.startswith(_HIDDEN) and not (name.startswith("_") and "=" in name)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdecimal() and -(2**63) <= int(text) < 2**63
