"""Categories as inputs: the numbers of the most frequent of the training rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.errors import DataError
from models.identity.hashing import hash_values
from models.inputs.categorical.record import CategoricalInput
from models.inputs.raw_rows import KindRows, LearntInputs, RawRows, Tensors
from models.inputs.record import CategoryRecord, LearntFiles
from models.inputs.types import NOT_YET, Dtype, all_missing, category_texts, dtype_of, is_collected_later, is_text
from models.project_spec.blocks import Features

MIN_ROWS_OF_IDENTITY = 50


def fit_categorical(name: str, texts: pa.ChunkedArray, dtype: Dtype, features: Features) -> CategoricalInput:
    """Return the most frequent categories of the training rows, most frequent first (ties are ordered by name).

    Raises:
        DataError: The column has no value at all.
    """
    levels = most_frequent(texts, features.max_categories)
    if not levels:
        raise DataError(all_missing(name))
    return CategoricalInput(name=name, categories=levels, dtype=dtype)


def most_frequent(texts: pa.ChunkedArray, limit: int) -> list[str]:
    """Return the most frequent texts, most frequent first (ties are ordered by name)."""
    counts = pc.value_counts(scratch.by_parts(texts, pa.ChunkedArray.drop_null))
    numbers = counts.field("counts").to_numpy()
    if len(numbers) > limit:
        counts = counts.filter(pa.array(numbers >= np.partition(numbers, -limit)[-limit]))
    pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    return [text for text, _ in sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:limit]]


def names_each_row(texts: pa.ChunkedArray) -> bool:
    """Return True if every value differs: an id or free text, from which a model learns nothing about other rows."""
    present = scratch.by_parts(texts, pa.ChunkedArray.drop_null)
    if len(present) < MIN_ROWS_OF_IDENTITY:
        return False
    for part in scratch.parts(len(present)):
        rows = present.slice(part.start, part.stop - part.start)
        if pc.count_distinct(rows).as_py() < len(rows):
            return False
    return len(present) <= scratch.PART or len(scratch.unique(hash_values(present, ""))) == len(present)


def category_indices(column: pa.ChunkedArray, part: CategoryRecord) -> np.ndarray:
    """Return texts as int32 indices (rows,): 0 unseen or missing, i + 1 for `categories[i]`."""
    return level_codes(column, part.categories)


def level_codes(column: pa.ChunkedArray, levels: Sequence[str]) -> np.ndarray:
    """Return the number of each text among some levels, int32 (rows,), from 1 on; 0 for one that is none of them."""
    value_set = pa.array(levels, pa.string())

    def codes_of(part: slice) -> np.ndarray:
        places = pc.index_in(column.slice(part.start, part.stop - part.start), value_set, skip_nulls=True)
        return np.asarray(pc.fill_null(pc.add(places, 1), 0).to_numpy())

    return scratch.filled(len(column), np.int32, codes_of)


def _guess(kind: pa.DataType) -> bool:
    return is_text(kind) or bool(pa.types.is_boolean(kind))


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[CategoricalInput]:
    parts, features = [], rows.data.features
    for name in names:
        column = rows.table.column(name)
        texts = category_texts(column)
        training = scratch.chosen_values(texts, rows.train)
        if is_collected_later(name, texts.is_valid().to_numpy(), rows.train):
            learnt.columns.left_out[name] = NOT_YET
        elif name not in features.kinds and names_each_row(training):
            learnt.columns.left_out[name] = "every training row has another value (an id)"
        else:
            learnt.add(name, texts)
            parts.append(fit_categorical(name, training, dtype_of(column.type), features))
    return parts


def _values(column: pa.ChunkedArray, part: CategoricalInput) -> pa.ChunkedArray:
    del part
    return category_texts(column)


def _encode(rows: pa.Table, parts: Sequence[CategoricalInput], files: LearntFiles) -> Tensors:
    del files
    indices = np.empty((rows.num_rows, len(parts)), dtype=np.int32)
    for position, part in enumerate(parts):
        indices[:, position] = category_indices(rows.column(part.name), part)
    return {"categorical": indices}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
    guess=_guess,
)
