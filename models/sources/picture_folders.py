"""A folder of pictures as a table: a row for each file, its class the name of the folder that holds it.

A folder that holds a table too is read as that table, whose column of paths may name the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pyarrow as pa

from models.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif")
"""Of the formats that `models/inputs/image/pictures.py` reads."""
IMAGE, CLASS = "image", "class"
"""The columns; the first is the default of `data.image.column`."""
_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "eval", "dev"}
_CURE = "move it, or begin its name with _"


def is_picture(path: Path | PurePosixPath) -> bool:
    """Return whether a file is a picture by its name."""
    return path.suffix.lower() in SUFFIXES


def is_of_classes(pictures: Sequence[PurePosixPath], tables: Sequence[PurePosixPath]) -> bool:
    """Return whether pictures lie in folders of their classes though there are tables too: all are in some classes.

    A table beside these folders or above the pictures names them, and tables in all folders are the rows.

    Args:
        pictures: Their paths below the folder that is read.
        tables: Those of the tables there.
    """
    folders = {_class_of(name) for name in pictures}
    return bool(tables) and len(folders) > 1 and {_class_of(name) for name in tables} < folders - {None}


def picture_table(folder: Path, files: Sequence[Path]) -> pa.Table:
    """Return the paths of a folder's pictures, in the order of their names, with their classes.

    The class is the first folder below `folder`; a picture beside these folders has none, and is unlabelled.

    Args:
        folder: The folder.
        files: Its files that are not hidden.

    Raises:
        DataError: See `check_names`; or a folder holds no picture.
    """
    names = [path.relative_to(folder) for path in files]
    check_names(str(folder), [PurePosixPath(name.as_posix()) for name in names])
    pictures = [name for name in names if is_picture(name)]
    classes = [_class_of(PurePosixPath(name.as_posix())) for name in pictures]
    folders = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))]
    if empty := sorted({path.name for path in folders} - set(classes)):
        if (folder / empty[0]).is_symlink():
            raise DataError(f"{folder}: {empty[0]!r} is a link, which is not followed: put a folder there")
        raise DataError(f"{folder}: the folder {empty[0]!r} holds no picture: put some there, or remove it")
    paths = [str(folder / name) for name in pictures]
    return pa.table({IMAGE: pa.array(paths, pa.string()), CLASS: pa.array(classes, pa.string())})


def check_names(display_name: str, names: Sequence[PurePosixPath]) -> None:
    """Refuse what cannot be learnt from a folder of pictures, by the names of its files alone.

    Raises:
        DataError: There are fewer than two classes, a file in a class is no picture, or the first folders are those
            of a split and not of classes.
    """
    others = [name for name in names if len(name.parts) > 1 and not is_picture(name)]
    if others:
        raise DataError(
            f"{display_name}: {others[0]} is no picture ({', '.join(SUFFIXES)}), as {len(others)} of {len(names)} "
            f"files: {_CURE}"
        )
    folders = {text for name in names if is_picture(name) and (text := _class_of(name))}
    if splits := sorted(text for text in folders if text.lower() in _SPLITS):
        raise DataError(
            f"{display_name}: expected a folder for each class, got {splits[0]!r}, which is none: name the folder "
            "of the classes, such as .../train; Loopline keeps rows for tests itself (data.split)"
        )
    if len(folders) < 2:
        got = f"those of one class, {min(folders)!r}," if folders else "no folder with pictures,"
        raise DataError(
            f"{display_name}: got {got} expected a folder for each of two classes or more: make them, or put a table "
            "of paths and targets beside the pictures"
        )


def _class_of(name: PurePosixPath) -> str | None:
    return name.parts[0] if len(name.parts) > 1 else None
