"""Further formats of files, beside CSV, Parquet, texts and R: a reader for each suffix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.json

from models.errors import DataError, one_line
from models.sources.delimiter import WORKBOOKS
from models.sources.packed import arrow_input, open_unpacked
from models.sources.readers.excel import read_excel

OBJECT_BYTES = 64 << 20
"""The longest object of JSON lines: pyarrow refuses one that does not fit into its block, of 1 MiB by default."""

ARRAY_BYTES = 256 << 20
"""The longest JSON array: its objects take some ten times as much in memory."""


def read_json_lines(path: Path) -> pa.Table:
    """Return the objects of a file, one a line, as rows.

    Raises:
        DataError: The file is no JSON lines, or a field has several types.
    """
    try:
        return pyarrow.json.read_json(arrow_input(path), read_options=pyarrow.json.ReadOptions(block_size=OBJECT_BYTES))
    except (pa.ArrowException, OSError) as error:
        cure = "write one object a line, and each field with one type"
        raise DataError(f"{path}: not readable as JSON lines ({one_line(error, 150)}): {cure}") from error


def read_json(path: Path) -> pa.Table:
    """Return the objects of a JSON array as rows; a field that an object lacks is missing.

    Raises:
        DataError: The file is no array of objects, or a field has several types.
    """
    try:
        with open_unpacked(path) as file:
            content = file.read(ARRAY_BYTES + 1)
        if len(content) > ARRAY_BYTES:
            raise ValueError(f"more than {ARRAY_BYTES >> 20} MiB, which are in memory as a whole: `jq -c .[]`")
        objects = json.loads(content)
        if not isinstance(objects, list) or not all(isinstance(value, dict) for value in objects):
            raise TypeError(f"got {type(objects).__name__}")
        names = dict.fromkeys(name for value in objects for name in value)
        return pa.table({name: pa.array([value.get(name) for value in objects]) for name in names})
    except (ValueError, TypeError, RecursionError, OSError, pa.ArrowException) as error:
        cure = "write [{...}, {...}], and each field with one type; a file of one object a line ends with .jsonl"
        raise DataError(f"{path}: not readable as a JSON array of objects ({one_line(error, 150)}): {cure}") from error


def read_arrow(path: Path) -> pa.Table:
    """Return the table of a Feather or Arrow file, or of an Arrow stream.

    Raises:
        DataError: The file is none, or was cut short.
    """
    try:
        try:
            return pyarrow.feather.read_table(path, memory_map=False)
        except pa.ArrowInvalid:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                return stream.read_all()
    except (pa.ArrowException, OSError) as error:
        cure = "it was cut short or is of another format; copy or make it again"
        raise DataError(f"{path}: not readable as a Feather or Arrow file ({one_line(error, 150)}): {cure}") from error


FORMATS: dict[str, Callable[[Path], pa.Table]] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".feather": read_arrow,
    ".arrow": read_arrow,
    ".json": read_json,
    **dict.fromkeys(WORKBOOKS, read_excel),
}
"""The reader of each suffix; JSON may be compressed."""
IN_FOLDERS = tuple(suffix for suffix in FORMATS if suffix != ".json")
"""Those of which a folder may be made; a `.json` file beside tables describes them."""
