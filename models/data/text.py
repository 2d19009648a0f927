"""Text as examples: lines in their order, cut into contiguous splits, and windows of characters within each.

No window reaches from one split into another, so the model is never evaluated on training text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.check import check_columns
from models.data.columns import with_slices
from models.data.preparation import SPLITS, Preparation, TextInput
from models.data.prepared_rows import rows_of
from models.data.split import by_position
from models.data.target_encoding import TargetEncoding
from models.errors import DataError
from models.inputs.types import is_text
from models.project_spec.blocks import Data, Text
from models.project_spec.reserved_columns import ROW_COLUMN, SPLIT_COLUMN
from models.sources.code_points import code_points

NEXT = "the next character"


def prepare_text(table: pa.Table, data: Data, slices: Sequence[str] = ()) -> tuple[pa.Table, Preparation]:
    """Return the prepared rows and the preparation of a raw text table: one row for each line, in the table's order.

    The alphabet comes from the training lines alone.

    Raises:
        DataError: The column is absent or holds no text, or a split is too short for a window.
    """
    check_columns(table, data, slices)
    shape = data.text or Text()
    lines = _lines(table, shape.column)
    codes = by_position(np.asarray(pc.utf8_length(lines).to_numpy(), dtype=np.int64) + 1, data.split)
    texts = {name: joined(lines.filter(pa.array(codes == code))) for code, name in enumerate(SPLITS)}
    characters = TextInput(
        column=shape.column,
        length=shape.length,
        stride=shape.stride or shape.length,
        alphabet="".join(sorted(set(texts["train"]))),
    )
    counts = {name: len(window_starts(len(text), characters, name)) for name, text in texts.items()}
    _check_windows(counts, {name: len(text) for name, text in texts.items()}, shape.length, table.num_rows)
    preparation = Preparation(
        kind="text",
        task="language",
        target=TargetEncoding(name=NEXT),
        characters=characters,
        rows=counts,
        left_out={name: "not the text" for name in table.column_names if name != shape.column},
    )
    rows = {
        shape.column: lines,
        ROW_COLUMN: pa.array(np.arange(table.num_rows), pa.int64()),
        SPLIT_COLUMN: pa.array(codes, pa.int8()),
    }
    return with_slices(pa.table(rows), table, slices), preparation


def joined(lines: pa.ChunkedArray) -> str:
    """Join lines into one text; each line ends with a line feed."""
    return "".join(f"{line}\n" for line in lines.to_pylist())


def text_of(prepared: Path, split: str, characters: TextInput) -> str:
    """Return the text of one split of a prepared folder.

    Raises:
        DataError: The folder is incomplete.
    """
    return joined(rows_of(prepared, split, [characters.column]).column(0))


def indices_of(points: np.ndarray, characters: TextInput) -> np.ndarray:
    """Return code points as indices of the alphabet, 0 for an unseen character, in the smallest integer type."""
    alphabet = code_points(characters.alphabet)
    place = np.minimum(np.searchsorted(alphabet, points), len(alphabet) - 1)
    indices = np.where(alphabet[place] == points, place + 1, 0)
    kinds = (np.uint8, np.int16, np.int32)
    return indices.astype(next(kind for kind in kinds if characters.cardinality - 1 <= np.iinfo(kind).max))


def window_starts(num_characters: int, characters: TextInput, split: str) -> np.ndarray:
    """Return the start positions of the windows in a split's text, int64 (windows,).

    Only training windows may overlap: in the other splits every character is predicted once.
    """
    stride = characters.stride if split == "train" else characters.length
    return np.arange(0, max(0, num_characters - characters.length), stride, dtype=np.int64)


def windows_of(points: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Return the code points of windows and of the character after each, int64 (windows, length + 1)."""
    return points[starts[:, None] + np.arange(length + 1)]


def _lines(table: pa.Table, column: str) -> pa.ChunkedArray:
    lines = table.column(column)
    if not is_text(lines.type):
        raise DataError(f"data.text.column {column!r}: got type {lines.type}, expected text: name another column")
    return pc.fill_null(lines.cast(pa.string()), "")


def _check_windows(counts: dict[str, int], lengths: dict[str, int], length: int, num_lines: int) -> None:
    for split, count in counts.items():
        if not count:
            sizes = ", ".join(f"{name} {number}" for name, number in lengths.items())
            cure = "give more text, a shorter data.text.length, or another data.split"
            if num_lines < len(SPLITS) * 2:
                cure += f" (the text has {num_lines} line(s), and cuts lie between lines: break long ones, `fold -s`)"
            raise DataError(
                f"data.text: one window takes {length + 1} characters, but {split} has {lengths[split]} "
                f"(characters: {sizes}): {cure}"
            )
