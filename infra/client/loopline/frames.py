"""Frames as files and back, by the library that a frame comes from: it is there already, whatever its version."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from loopline.errors import LooplineError

FILE = "rows.parquet"
EXPECTED = "expected a frame of pandas, polars or pyarrow, something with `__arrow_c_stream__`, or a path"


class Library(NamedTuple):
    """How a library writes a frame to a Parquet file, and reads the answer for that frame from one."""

    write: Callable[[Any, str], object]
    read: Callable[[Any, str], Any]


def _pandas_write(frame: Any, path: str) -> None:
    unnamed = [level for level, name in enumerate(frame.index.names) if name is None]
    is_column = len(unnamed) < frame.index.nlevels
    (frame.droplevel(unnamed) if unnamed and is_column else frame).to_parquet(path, index=is_column)


def _pandas_read(frame: Any, path: str) -> Any:
    answer = importlib.import_module("pandas").read_parquet(path)
    return answer.set_index(frame.index) if len(answer) == len(frame) else answer


def _polars_write(frame: Any, path: str) -> None:
    frame.lazy().collect().write_parquet(path)


def _polars_read(frame: Any, path: str) -> Any:
    del frame
    return importlib.import_module("polars").read_parquet(path)


def _arrow_write(frame: Any, path: str) -> None:
    arrow = importlib.import_module("pyarrow")
    table = frame if isinstance(frame, arrow.Table) else arrow.table(frame)
    importlib.import_module("pyarrow.parquet").write_table(table, path)


def _arrow_read(frame: Any, path: str) -> Any:
    del frame
    return importlib.import_module("pyarrow.parquet").read_table(path)


LIBRARIES = {
    "pandas": Library(_pandas_write, _pandas_read),
    "polars": Library(_polars_write, _polars_read),
    "pyarrow": Library(_arrow_write, _arrow_read),
}


def library_of(frame: Any) -> Library:
    """Return the library of a frame, also of a frame whose class is derived from one of a library.

    Raises:
        LooplineError: It is no frame.
    """
    names = [base.__module__.partition(".")[0] for base in type(frame).__mro__]
    library = next((LIBRARIES[name] for name in names if name in LIBRARIES), LIBRARIES["pyarrow"])
    if hasattr(type(frame), "columns" if library != LIBRARIES["pyarrow"] else "__arrow_c_stream__"):
        return library
    raise LooplineError(f"frame: got {type(frame).__name__}, {EXPECTED}")


@contextlib.contextmanager
def as_file(frame: Any) -> Iterator[tuple[str, Callable[[str], Any] | None]]:
    """Yield the path of a file with the rows of a frame, and what reads the answer: None if the frame is a path itself.

    Raises:
        LooplineError: It is no frame, or cannot be written as Parquet.
    """
    if isinstance(frame, str | os.PathLike):
        yield str(Path(frame).expanduser().absolute()), None
        return
    library = library_of(frame)
    with tempfile.TemporaryDirectory(prefix="loopline-") as folder:
        path = str(Path(folder) / FILE)
        try:
            library.write(frame, path)
        except ImportError as error:
            cure = "install it beside the frame's library, such as by `pip install pyarrow`, or give a path"
            raise LooplineError(f"frame: cannot be written as Parquet without pyarrow: {cure}") from error
        except Exception as error:
            reason = " ".join(str(error).split())
            raise LooplineError(
                f"frame: cannot be written as Parquet ({reason}): give each column a name and one type"
            ) from error
        try:
            yield path, lambda answer: library.read(frame, answer)
        except LooplineError as error:
            raise LooplineError(str(error).replace(path, "the frame")) from None
