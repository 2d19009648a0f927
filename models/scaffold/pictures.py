"""A first spec for pictures without a spec: a folder of them, or a table with a column of their paths."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from models.inputs.image.pictures import is_file
from models.inputs.types import as_text, is_bytes, is_text
from models.scaffold.columns import num_values
from models.scaffold.expectations import yaml_text, yaml_value
from models.scaffold.table import positive_lines
from models.sources.picture_folders import is_picture

MOST_SIDE, STEP = 64, 8
LOOKED_AT, LOOKED_AT_FIRST = 200, 20
"""Pictures whose sizes are read, and values by which a column of pictures is recognised."""
_MOST_CLASSES = 200
_SQUARE, _ALIKE, _SHARE_ALIKE = 1.25, 1.5, 0.9
"""Ratios of sides up to which pictures are square, and up to which they are cropped if as many of them are alike."""
_SEED = 7


class _Sizes(NamedTuple):
    """Width and height of some pictures, int64 (picture,), and whether all are grey."""

    width: np.ndarray
    height: np.ndarray
    is_grey: bool


def picture_column(table: pa.Table, folder: Path) -> str | None:
    """Return the column of pictures: of their files, or of texts that are paths of them; None if there is none.

    Args:
        table: The rows.
        folder: The folder to which paths are relative.
    """
    for name in table.column_names:
        column = table.column(name)
        first = column.drop_null().slice(0, LOOKED_AT_FIRST)
        if is_bytes(column.type):
            is_of_pictures = all(is_file(content) for content in first.to_pylist())
        elif is_text(column.type):
            paths = as_text(first).to_pylist()
            is_of_pictures = all(is_picture(Path(text)) and (folder / text).is_file() for text in paths)
        else:
            continue
        if len(first) and is_of_pictures:
            return str(name)
    return None


def guess_picture_spec(table: pa.Table, column: str, folder: Path, name: str, target: str, source: str) -> str:
    """Return the text of a valid `project.yaml` for pictures, with comments.

    Args:
        table: The rows: pictures and the target.
        column: The column of pictures.
        folder: The folder to which paths are relative.
        name: The project's name.
        target: The column to predict.
        source: The value of `data.source`.
    """
    sizes = _sizes(table.column(column).drop_null(), folder)
    answers = table.column(target)
    num_classes = num_values(answers)
    is_class = is_text(answers.type) or pa.types.is_boolean(answers.type) or num_classes <= MOST_SIDE
    what = f"{num_classes} classes" if is_class else f"{num_classes:,} values of {target}"
    extent = f"{sizes.width.min()} x {sizes.height.min()} to {sizes.width.max()} x {sizes.height.max()} pixels"
    lines = [
        f"# {table.num_rows:,} pictures, {what}, from {extent} (of {len(sizes.width)} that were looked at).",
        "# Everything here is a guess: read it, then change it.",
        f"name: {name}",
        "",
        "data:",
        f"  source: {yaml_text(source)}",
        f"  target: {yaml_text(target)}",
        "  kind: image",
        "  # What each picture becomes. More pixels show more, and cost more.",
        f"  image: {{column: {yaml_text(column)}, {_shape(sizes)}}}",
        *(["  unlabelled: true"] if answers.null_count else []),
        "  # If pictures belong together (ten of one thing), read a column that names the thing, and split by group.",
        f"  split: {{by: {'stratified' if is_class else 'random'}}}",
        *_expectation_lines(answers, target, is_class, table.num_rows),
        "",
        *(positive_lines(answers) if is_class and num_classes == 2 else ()),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _sizes(pictures: pa.ChunkedArray, folder: Path) -> _Sizes:
    from PIL import Image

    picked = np.random.default_rng(_SEED).permutation(len(pictures))[:LOOKED_AT]
    sizes, modes = [], set()
    for value in pictures.take(pa.array(picked)).to_pylist():
        try:
            # reads no more than the head of the file
            with Image.open(io.BytesIO(value) if isinstance(value, bytes) else folder / value) as picture:
                sizes.append(picture.size)
                modes.add(picture.mode)
        except OSError:  # the first run names it
            continue
    array = np.array(sizes or [(MOST_SIDE, MOST_SIDE)], dtype=np.int64)
    return _Sizes(array[:, 0], array[:, 1], bool(modes) and modes <= {"1", "L", "LA", "I;16"})


def _shape(sizes: _Sizes) -> str:
    """Return the keys of the shape that pictures get, and how they are brought to it."""
    ratios = sizes.width / sizes.height
    ratio = float(np.median(ratios))
    longest = min(MOST_SIDE, int(np.median(np.maximum(sizes.width, sizes.height))))
    wide = 1.0 if 1 / _SQUARE <= ratio <= _SQUARE else ratio
    width, height = (longest, longest / wide) if wide >= 1 else (longest * wide, longest)
    is_alike = np.mean(np.maximum(ratios / ratio, ratio / ratios) <= _ALIKE) >= _SHARE_ALIKE
    channels, resize = 1 if sizes.is_grey else 3, "crop" if is_alike else "pad"
    return f"height: {_rounded(height)}, width: {_rounded(width)}, channels: {channels}, resize: {resize}"


def _rounded(side: float) -> int:
    return max(STEP, round(side / STEP) * STEP)


def _expectation_lines(answers: pa.ChunkedArray, target: str, is_class: bool, num_rows: int) -> Iterator[str]:
    yield "  expectations:"
    yield (
        "    - {expect: table_row_count_to_be_between, severity: reject, arguments: "
        f"{{min_value: {max(10, num_rows // 2)}}}}}"
    )
    if is_class and is_text(answers.type):
        values = sorted(as_text(answers).drop_null().unique().to_pylist())
        if len(values) <= _MOST_CLASSES:
            yield (
                "    - {expect: column_values_to_be_in_set, severity: warn, arguments: "
                f"{{column: {yaml_text(target)}, value_set: {yaml_value(values)}}}}}"
            )
