"""Reader of a source (file, folder of Parquet, data frame) into one Arrow table; errors name a cure."""

from __future__ import annotations

import codecs
import contextlib
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from models import scratch
from models.errors import DataError
from models.files import whole_file
from models.project_spec.reserved_columns import IDENTITY_COLUMN, RESERVED, SLICE_PREFIX
from models.sources import r_data
from models.sources.delimiter import PARQUET, SUFFIXES
from models.sources.folders import READABLE, data_files, partition_of, partition_types, visible_files, with_partitions
from models.sources.formats import FORMATS
from models.sources.packed import arrow_input, delimiter_of, open_unpacked, split_part, suffix_of
from models.sources.picture_folders import is_picture, picture_table
from models.sources.readers.csv_stream import is_large, streamed
from models.sources.readers.decimal_commas import decimal_commas
from models.sources.readers.delta import is_delta, read_delta
from models.sources.text_files import is_text_file, read_text
from models.sources.whole_numbers import with_unsigned, with_whole_ids

GROUP_ROWS, GROUP_BYTES = 1 << 18, 64 << 20
"""Of a group of rows in a file, at most: a dictionary of 20,000 texts pays in it, and a reader holds little."""
_REPEATS = 4
"""Rows for each different value from which on a dictionary pays."""
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""The errors of pyarrow on a Parquet file that is damaged, or is none."""
_ROW = re.compile(r"Row #(\d+)")
_READABLE = f"{READABLE}, or an .rda or .rds file"


class CsvRules(NamedTuple):
    """What the spec says of a CSV: its column of ids, the columns in which NA is a text, and those read as texts."""

    id_column: str | None = None
    na_is_text: Sequence[str] = ()
    as_text: Sequence[str] = ()


def read_source(
    source: Any,
    display_name: str = "",
    id_column: str | None = None,
    *,
    is_text: bool = False,
    na_is_text: Sequence[str] = (),
    as_text: Sequence[str] = (),
) -> pa.Table:
    """Return the raw table of a source.

    CSV: UTF-8 with a header, which shows the delimiter (`,`, `;`, tab or `|`); empty fields, NA, NaN and
    null are missing; types are inferred from all rows. Plain text: UTF-8, one row for each line. Of a folder, files and
    folders whose names begin with `.` or `_` are left out; folders named `city=Oslo` make a column `city`.

    Args:
        source: A path, a pandas DataFrame or an Arrow table.
        display_name: Name of the source in error messages; default: the path.
        id_column: The column that names the rows. In CSV it is read as text if a number would lose digits: 00001 is
            not 1.
        is_text: Whether of a folder the texts are read, although it holds tables too.
        na_is_text: Columns of a CSV in which NA, null and their like are texts.
        as_text: Columns of a CSV whose cells are kept as they are written, but for missing ones.

    Raises:
        DataError: Missing, unreadable, not UTF-8, cut short, without rows, or with columns that share a name.
    """
    display_name = display_name or (str(source) if isinstance(source, (str, Path)) else "the source's table")
    if isinstance(source, (str, Path)):
        table = _read_path(Path(source), display_name, CsvRules(id_column, na_is_text, as_text), is_text)
    elif isinstance(source, pa.Table):
        table = source
    else:
        table = _from_frame(source, display_name)
    return _checked(with_plain_types(table), display_name)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet, completely or not at all."""
    with whole_file(path) as temporary:
        write_parquet(table, temporary)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet in groups of at most `GROUP_ROWS` rows and `GROUP_BYTES`: readers hold one of them."""
    rows = min(GROUP_ROWS, max(1, GROUP_BYTES * table.num_rows // max(1, table.nbytes)))
    pq.write_table(table, path, **parquet_options(table), row_group_size=rows)


def parquet_options(table: pa.Table) -> dict[str, Any]:
    """Return the options of a Parquet file: compressed, with dictionaries of columns whose values repeat in its groups.

    A dictionary of others is a copy of them: a quarter of the file, and half the time. Their bytes are sorted by
    significance, so that numbers in order take nearly nothing, but not those of identities, which are noise.
    """
    names = [name for name in table.column_names if name != IDENTITY_COLUMN]
    repeated = [name for name in names if _repeats(table[name].slice(0, GROUP_ROWS))]
    others = [name for name in names if name not in repeated and _bit_width(table[name].type) in (32, 64)]
    return {"compression": "zstd", "use_dictionary": repeated, "use_byte_stream_split": others}


def _bit_width(kind: pa.DataType) -> int:
    return int(kind.bit_width) if pa.types.is_primitive(kind) else 0


def _repeats(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind)):
        return bool(pa.types.is_dictionary(kind))
    return bool(pc.count_distinct(column).as_py() * _REPEATS <= len(column))


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some of its columns.

    Raises:
        DataError: Missing, cut short, no Parquet at all, or with columns that share a name.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file: correct the path, or make the file first")
    try:
        table = pq.read_table(path, columns=columns, memory_map=True, partitioning=None)
        table.schema.names  # noqa: B018  the names are decoded only here
    except UNREADABLE as error:
        with contextlib.suppress(*UNREADABLE):  # pyarrow reads no table whose columns share a name
            refuse_shared_names(pq.read_schema(path).names, str(path))
        raise DataError(
            f"{path}: got {path.stat().st_size} bytes that are no whole Parquet file ({first_line(error)}): "
            "it was cut short or is of another format; copy or make it again"
        ) from error
    return table


def check_texts(table: pa.Table, display_name: str) -> None:
    """Refuse texts that are not UTF-8: other tools may write such into a Parquet file.

    Cost: 36 ms for a million short texts.

    Raises:
        DataError: Names the column.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{display_name}: column {name!r} holds what cannot be read ({first_line(error)}): write it again, "
                "with texts as UTF-8"
            ) from error


def csv_options(
    delimiter: str,
    types: Mapping[str, pa.DataType],
    columns: Sequence[str] = (),
    na_is_text: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the options of Arrow's readers of CSV: the same wherever a CSV is read.

    Args:
        delimiter: Of the file.
        types: Types of columns; those of others are inferred.
        columns: The columns to read; default: all.
        na_is_text: If there are some, each cell of text is read as it is, for `with_na`.
    """
    return {
        "parse_options": pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=types, include_columns=columns, strings_can_be_null=not na_is_text
        ),
    }


def with_na(table: pa.Table, na_is_text: Sequence[str]) -> pa.Table:
    """Return a table of a CSV with its missing texts: empty ones, and in columns not named those of Arrow, as NA."""
    words = pa.array(pyarrow.csv.ConvertOptions().null_values, pa.string())
    for position, field in enumerate(table.schema if na_is_text else ()):
        if pa.types.is_string(field.type):
            column = table.column(position)
            is_missing = pc.equal(column, "") if field.name in na_is_text else pc.is_in(column, value_set=words)
            table = table.set_column(position, field.name, pc.if_else(is_missing, pa.scalar(None, pa.string()), column))
    return table


def refuse_empty(path: Path) -> None:
    """Refuse a CSV without a byte.

    Raises:
        DataError: It is empty.
    """
    if not split_part(path).file.stat().st_size:
        raise DataError(f"{path}: the file is empty, expected a header and rows: make it again")


def refuse_open_quote(table: pa.Table, path: Path) -> None:
    """Refuse a CSV whose last cell is a quote that is never closed: it would hold all lines behind it.

    Raises:
        DataError: Shows the beginning of the cell.
    """
    if not table.num_rows or not pa.types.is_string(table.schema.field(-1).type):
        return
    cell = table.column(-1)[-1].as_py()
    if cell is None or "\n" not in cell:
        return
    with open_unpacked(path) as stream:
        last = b""
        while block := stream.read(1 << 20):
            last = (last + block).rstrip(b"\r\n")[-1:]
    if last != b'"':
        raise DataError(f"{path}: the last row: a quote is opened before {cell[:40]!r} and never closed: close it")


def _read_path(path: Path, display_name: str, rules: CsvRules, is_text: bool) -> pa.Table:
    if not split_part(path).file.exists():
        raise DataError(f"{path}: no such file or folder: correct data.source, or put the data there")
    if path.is_dir():
        return _read_folder(path, rules, is_text)
    if suffix_of(path) in (*SUFFIXES, *PARQUET, *FORMATS):
        return _read_file(path, rules)
    if is_text_file(path):
        return read_text(path)
    if path.suffix.lower() in r_data.SUFFIXES:
        table = r_data.r_table(path)
        return table if isinstance(table, pa.Table) else _from_frame(table, display_name)
    raise DataError(f"{path}: got a {path.suffix or 'nameless'} file, expected {_READABLE}: convert it")


def _read_file(path: Path, rules: CsvRules) -> pa.Table:
    suffix = suffix_of(path)
    if suffix in SUFFIXES:
        return _read_csv(path, rules)
    return with_plain_types(FORMATS.get(suffix, read_table)(path))


def _read_folder(folder: Path, rules: CsvRules, is_text: bool) -> pa.Table:
    files = data_files(folder, is_text=is_text)
    if is_delta(folder) and not is_text:
        return with_plain_types(read_delta(folder))
    if is_picture(files[0]):
        return picture_table(folder, visible_files(folder))
    if is_text_file(files[0]):
        return read_text(folder)
    partitions = [partition_of(file, folder) for file in files]
    types = partition_types(partitions)
    tables = [
        with_partitions(_read_file(file, rules), values, types) for file, values in zip(files, partitions, strict=True)
    ]
    id_column = rules.id_column
    if any(id_column in table.column_names and pa.types.is_string(table.column(id_column).type) for table in tables):
        tables = [_with_text(table, id_column) for table in tables]
    # Types of CSV and JSON are inferred file by file: 1 in one and 1.5 in the next are numbers.
    promote = "default" if suffix_of(files[0]) in PARQUET else "permissive"
    try:
        return pa.concat_tables(tables, promote_options=promote)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        for file, table in zip(files, tables, strict=True):
            for field in table.schema:
                first = tables[0].schema
                if field.name in first.names and first.field(field.name).type != field.type:
                    raise DataError(
                        f"{file}: column {field.name!r} is {field.type}, but {first.field(field.name).type} in "
                        f"{files[0].name}: write all files with one type"
                    ) from error
        raise DataError(
            f"{folder}: its files do not fit together ({first_line(error)}): write all of them with the same columns "
            "and types"
        ) from error


def _with_text(table: pa.Table, name: str | None) -> pa.Table:
    """Return the table with a column of integers as texts."""
    if name not in table.column_names or not pa.types.is_integer(table.column(name).type):
        return table
    return table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.string()))


def _read_csv(path: Path, rules: CsvRules) -> pa.Table:
    refuse_empty(path)
    try:
        delimiter = delimiter_of(path)
        table = _parsed(path, delimiter, na_is_text=rules.na_is_text, as_text=rules.as_text)
        refuse_shared_names(table.column_names, str(path))
        table = with_unsigned(table, lambda names: _parsed(path, delimiter, texts=names))
        table = with_whole_ids(table, rules.id_column, lambda names: _parsed(path, delimiter, texts=names))
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        _refuse_if_not_utf8(path)
        numbered = with_row(first_line(error)) if _ROW.search(first_line(error)) else _numbered(path, delimiter)
        reason = numbered or first_line(error)
        if "Empty CSV file or block" in reason:
            reason = "its first row does not end within 1 MiB: is it a table?"
        if "straddles two block boundaries" in reason:
            reason = "a row does not end within 1 MiB: is a quote left open?"
        raise DataError(f"{path}: not a readable CSV file: {reason}: correct that line") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({first_line(error)}): copy or make it again") from error
    if any(pa.types.is_binary(kind) for kind in table.schema.types):
        _refuse_if_not_utf8(path)
    refuse_open_quote(table, path)
    if delimiter != ",":
        _refuse_decimal_commas(table, path, rules.as_text)
    return table


def _parsed(
    path: Path,
    delimiter: str,
    use_threads: bool = True,
    texts: Sequence[str] = (),
    na_is_text: Sequence[str] = (),
    as_text: Sequence[str] = (),
) -> pa.Table:
    """Return the table, or some of its columns as texts; a large one in parts, where large arrays lie in files."""
    types = dict.fromkeys((*texts, *na_is_text, *as_text), pa.string())
    folder = scratch.place()
    if folder is not None and use_threads and is_large(path):
        options_of = partial(csv_options, delimiter, columns=texts, na_is_text=na_is_text)
        return streamed(path, types, options_of, partial(with_na, na_is_text=na_is_text), folder)
    options = csv_options(delimiter, types, texts, na_is_text)
    read_options = pyarrow.csv.ReadOptions(use_threads=use_threads)
    return with_na(pyarrow.csv.read_csv(arrow_input(path), read_options=read_options, **options), na_is_text)


def _numbered(path: Path, delimiter: str) -> str | None:
    """Return the CSV error with its row: pyarrow counts rows only when it reads with one thread."""
    try:
        _parsed(path, delimiter, use_threads=False)
    except pa.ArrowInvalid as error:
        return with_row(first_line(error))
    return None


def with_row(reason: str) -> str:
    """Return a reason of Arrow with its row as all messages count: the first row under the header is row 1."""
    return _ROW.sub(lambda place: _row(int(place.group(1)) - 1), reason)


def _row(number: int) -> str:
    return f"row {number} (the first under the header is row 1)" if number else "the header"


def _refuse_decimal_commas(table: pa.Table, path: Path, as_text: Sequence[str]) -> None:
    if names := decimal_commas(table.select([name for name in table.column_names if name not in as_text]), ";"):
        example = next(text for text in table.column(names[0]).drop_null().to_pylist() if "," in text)
        raise DataError(
            f"{path}: column {names[0]!r} has decimal commas, such as {example!r}: say `decimal_commas: "
            f"[{', '.join(names)}]` below data in the spec, or write points"
        )


def _refuse_if_not_utf8(path: Path) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, offset = 1, 0
    with open_unpacked(path) as stream:
        while block := stream.read(1 << 20):
            pending = decoder.getstate()[0]
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                data = pending + block
                line += data[: error.start].count(b"\n")
                byte = offset - len(pending) + error.start
                raise DataError(
                    f"{path}:{line}: byte 0x{data[error.start]:02x} at offset {byte} is not UTF-8: save the file as "
                    "UTF-8, or convert it: iconv -f latin1 -t utf-8, or of UTF-16: iconv -f utf-16 -t utf-8"
                ) from error
            line += block.count(b"\n")
            offset += len(block)


def _from_frame(source: Any, display_name: str) -> pa.Table:
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(source, pandas.DataFrame):
        raise DataError(
            f"{display_name}: got a {type(source).__name__}, expected a pandas DataFrame, a pyarrow Table or a path"
        )
    refuse_shared_names([str(name) for name in source.columns], display_name)
    try:
        return pa.Table.from_pandas(source, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"{display_name}: a column mixes types: {first_line(error)}: give each column one type, as in "
            "frame['x'].astype(str)"
        ) from error
    except (TypeError, OverflowError) as error:
        raise DataError(
            f"{display_name}: a column cannot be read: {first_line(error)}: give it one plain type, as in "
            "frame['x'].astype('float64')"
        ) from error


def with_plain_types(table: pa.Table) -> pa.Table:
    """Convert string views, half floats, categories, periods and intervals: Arrow 25 computes little on them."""
    for position, field in enumerate(table.schema):
        values = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        values = values.storage_type if isinstance(values, pa.BaseExtensionType) else values
        if (kind := _PLAIN.get(values, values)) != field.type:
            column = scratch.by_parts(table.column(position), partial(pa.ChunkedArray.cast, target_type=kind))
            table = table.set_column(position, field.name, column)
    return table


_PLAIN: dict[pa.DataType, pa.DataType] = {pa.string_view(): pa.string(), pa.float16(): pa.float32()}


def _checked(table: pa.Table, display_name: str) -> pa.Table:
    refuse_shared_names(table.column_names, display_name)
    for position, name in enumerate(table.column_names, start=1):
        if not name.strip():
            raise DataError(f"{display_name}: column {position} has no name: name it, or drop it, in the source")
        if name in RESERVED or name.startswith(SLICE_PREFIX):
            raise DataError(f"{display_name}: column {name!r} has a name that Loopline uses itself: rename it")
    check_texts(table, display_name)
    if not table.num_rows:
        raise DataError(f"{display_name}: the table has {table.num_columns} columns and no rows: expected at least ten")
    return table


def refuse_shared_names(names: list[str], display_name: str) -> None:
    """Refuse columns that share a name.

    Raises:
        DataError: Names them, and where they stand.
    """
    shared = sorted(name for name, count in Counter(names).items() if count > 1)
    if shared:
        names_shown = ", ".join(f"{name!r} (columns {_positions(names, name)})" for name in shared[:5])
        raise DataError(f"{display_name}: several columns share a name: {names_shown}: rename or drop one of each")


def _positions(names: list[str], name: str) -> str:
    return ", ".join(str(position) for position, other_name in enumerate(names, start=1) if other_name == name)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; without a text its type."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
