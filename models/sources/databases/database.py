"""What a kind of database says of itself: the fields of its row, and what an open one answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from models.errors import DataError

CONNECT_S = 10
QUESTION_S = 600
"""Most seconds of a question of one row, such as a count."""
READ_S = 7200
"""Most seconds of the query whose rows are read."""
BATCH_ROWS = 1 << 15


class OpenDatabase(Protocol):
    """An open database, in one transaction that reads alone and sees one moment."""

    def schema(self, sql: str) -> pa.Schema:
        """Return the columns of a query with the types that `batches` gives them."""
        ...

    def batches(self, sql: str, schema: pa.Schema) -> Generator[pa.RecordBatch]:
        """Yield the rows of a query as they come, in plain types."""
        ...

    def row(self, sql: str) -> tuple[Any, ...]:
        """Return the one row of a query."""
        ...


class Database(NamedTuple):
    """A kind of database.

    Attributes:
        library: What must be installed.
        connect: Opens an address, relative to a folder.
        quote: Writes the name of a column.
        digest: Writes what a server computes of all rows of `{sql}` with some columns; empty where the file tells.
        tables: The query of the tables and views that its user may read: `folder` (the schema), `name`, `is_default`
            (found without its schema), `is_view`, `num_rows` and `num_columns`, null where its catalogue does not tell.
        random: Writes a number drawn for each row, from 0 to 1.
        file: Returns the file of an address; None of a server.
    """

    library: str
    connect: Callable[[str, Path], AbstractContextManager[OpenDatabase]]
    quote: Callable[[str], str]
    digest: Callable[[list[str]], str]
    tables: str
    random: str
    file: Callable[[str, Path], Path | None] = lambda url, base: None


def double_quoted(name: str) -> str:
    """Return the name of a column as standard SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def file_of(url: str, base: Path) -> Path:
    """Return the file of `sqlite:///shop.db`, relative to a folder; `sqlite:////srv/shop.db` is absolute."""
    path = url.partition("://")[2].partition("?")[0].removeprefix("/")
    return base / Path(path).expanduser()


def existing_file(url: str, base: Path) -> Path:
    """Return the file of an address.

    Raises:
        DataError: There is none.
    """
    path = file_of(url, base)
    if not path.is_file():
        raise DataError(f"there is no file {path}: correct the address")
    return path
