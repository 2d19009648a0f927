"""Prepared rows as the tensors that nets train on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.data.preparation import ROWS_FILE, SPLITS, Preparation
from models.data.prepared_rows import row_batches, rows_of
from models.data.target_forms import target_tensors
from models.data.tensor_file import RowWriter
from models.data.text import indices_of, text_of, window_starts
from models.data.unlabelled import UNLABELLED, read_unlabelled
from models.files import whole_file
from models.inputs.numeric.rows import standardised
from models.inputs.raw_rows import Tensors
from models.inputs.rows import encoded
from models.kinds.data_kind import PerDataKind
from models.project_spec.reserved_columns import KEY_COLUMN, SPLIT_COLUMN, WEIGHT_COLUMN
from models.sources.code_points import code_points
from models.sources.read import read_table

_TENSORS: PerDataKind[dict[str, type[np.generic]]] = {
    "table": {"numeric": np.float32, "categorical": np.int32},
    "image": {},
    "series": {},
    "text": {},
}
"""Tensors of rows that are there even without a column."""


def encode(folder: Path, split: str) -> Tensors:
    """Return the tensors of one split of a prepared folder.

    Table: `numeric` float32 (rows, num_numeric), `categorical` int32 (rows, num_categorical), and with texts `words`
    int32 (rows, num_words, 2), indices of words and of their stems. Image: `image`
    uint8 (rows, channel, height, width). Series: `series` float32 (time, feature), all steps with NaN for missing, and
    `end` int64 (examples,), the last input row of each example. Text: `tokens` (character,), indices of the alphabet in
    the smallest type that holds them, and `start` int64 (examples,), the first token of each example. All kinds except
    text: `target`, int64 classes, float32 standardised or 0/1 labels; numbers also `value`, the raw target in float64,
    which the metrics use; of several outputs both (examples, output); of a ranking `value` also has the group. Series,
    and tables and images split by time or group: `key` int64, the time or its rank, or the group. Of series it is the
    time of the last horizon, `first_key` that of the first.

    Raises:
        DataError: The folder is incomplete.
    """
    preparation = Preparation.load(folder)
    return _ENCODED[preparation.kind](folder, split, preparation)


def write_tensors(prepared: Path, out: Path) -> dict[str, Path]:
    """Write one safetensors file for each split into `out`; each file is complete or absent.

    Rows without a target, if the spec keeps them, go into a further file, `unlabelled`. Tables and images are encoded
    in batches, so that memory does not grow with the number of rows.

    Raises:
        DataError: The prepared folder is incomplete.
        StoreError: `out` cannot be written.
    """
    preparation = Preparation.load(prepared)
    paths = {split: out / f"{split}.safetensors" for split in SPLITS}
    with contextlib.ExitStack() as files:
        temporary = {split: files.enter_context(whole_file(path)) for split, path in paths.items()}
        _WRITTEN[preparation.kind](prepared, preparation, temporary)
    unlabelled = read_unlabelled(prepared)
    if unlabelled is not None:
        from safetensors.numpy import save_file

        paths[UNLABELLED] = out / f"{UNLABELLED}.safetensors"
        with whole_file(paths[UNLABELLED]) as path:
            save_file(_encode_inputs(unlabelled, preparation), path)
    return paths


def _encode_rows(rows: pa.Table, preparation: Preparation) -> Tensors:
    tensors = target_tensors(rows, preparation)
    if WEIGHT_COLUMN in rows.column_names:
        tensors["weight"] = rows.column(WEIGHT_COLUMN).to_numpy().astype(np.float32)
    if KEY_COLUMN in rows.column_names:
        tensors["key"] = rows.column(KEY_COLUMN).to_numpy()
    return tensors | _encode_inputs(rows, preparation)


def _encode_inputs(rows: pa.Table, preparation: Preparation) -> Tensors:
    blank = {name: np.empty((rows.num_rows, 0), dtype) for name, dtype in _TENSORS[preparation.kind].items()}
    return encoded(rows, preparation.inputs, preparation.files, blank)


def _write_whole(prepared: Path, preparation: Preparation, paths: Mapping[str, Path]) -> None:
    from safetensors.numpy import save_file

    for split, path in paths.items():
        save_file(_ENCODED[preparation.kind](prepared, split, preparation), path)


def _write_rows(prepared: Path, preparation: Preparation, paths: Mapping[str, Path]) -> None:
    splits = read_table(prepared / ROWS_FILE, [SPLIT_COLUMN]).column(SPLIT_COLUMN).to_numpy()
    counts = np.bincount(splits[splits >= 0], minlength=len(SPLITS))
    empty = _encode_rows(pq.read_schema(prepared / ROWS_FILE).empty_table(), preparation)
    written = dict.fromkeys(SPLITS, 0)
    with contextlib.ExitStack() as files:
        writers = {}
        for split, count in zip(SPLITS, counts, strict=True):
            layout = {name: (array.dtype, (int(count), *array.shape[1:])) for name, array in empty.items()}
            writers[split] = files.enter_context(RowWriter(paths[split], layout))
        for batch in row_batches(prepared):
            for number, split in enumerate(SPLITS):
                rows = batch.filter(pc.equal(batch.column(SPLIT_COLUMN), number))
                if rows.num_rows:
                    writers[split].put(written[split], _encode_rows(rows, preparation))
                    written[split] += rows.num_rows


def _encode_split(folder: Path, split: str, preparation: Preparation) -> Tensors:
    return _encode_rows(rows_of(folder, split), preparation)


def _encode_series(folder: Path, split: str, preparation: Preparation) -> Tensors:
    window = preparation.required_window
    rows = pa.concat_tables(row_batches(folder))
    targets = np.flatnonzero(rows.column(SPLIT_COLUMN).to_numpy() == SPLITS.index(split))
    chosen = rows.select(preparation.target.columns).take(pa.array(targets))
    steps = [standardised(rows.column(part.name).to_numpy(), part) for part in preparation.numeric]
    ends, times = (targets - window.last_horizon).astype(np.int64), rows.column(KEY_COLUMN).to_numpy()
    return {
        "series": np.stack(steps, axis=1),
        "end": ends,
        "first_key": times[ends + window.horizons[0]],
        "key": times[targets],
        **target_tensors(chosen, preparation),
    }


def _encode_text(folder: Path, split: str, preparation: Preparation) -> Tensors:
    characters = preparation.required_characters
    points = code_points(text_of(folder, split, characters))
    return {"tokens": indices_of(points, characters), "start": window_starts(len(points), characters, split)}


_ENCODED: PerDataKind[Callable[[Path, str, Preparation], Tensors]] = {
    "table": _encode_split,
    "image": _encode_split,
    "series": _encode_series,
    "text": _encode_text,
}
_WRITTEN: PerDataKind[Callable[[Path, Preparation, Mapping[str, Path]], None]] = {
    "table": _write_rows,
    "image": _write_rows,
    "series": _write_whole,
    "text": _write_whole,
}
"""Rows that are apart are encoded in batches; the steps of series and the characters of a text as a whole."""
