"""Texts as inputs: the features of their n-grams, and their first words in their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from models.inputs.raw_rows import KindRows, LearntInputs, PreparedColumns, RawRows, Tensors
from models.inputs.record import InputRecord, LearntFiles
from models.inputs.text.record import TextColumn, word_offsets
from models.inputs.types import NOT_YET, as_text, is_collected_later, is_text
from models.ngrams.columns import feature_column, feature_matrix, holds_texts, plain_texts
from models.project_spec.reserved_columns import TEXT_PREFIX


def _misfit(name: str, kind: pa.DataType) -> str:
    del name
    return "" if is_text(kind) else f"its type is {kind}, no text: say another kind in data.features.kinds"


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[TextColumn]:
    parts = []
    for name in names:
        column = as_text(rows.table.column(name))
        if is_collected_later(name, column.is_valid().to_numpy(), rows.train):
            learnt.columns.left_out[name] = NOT_YET
            continue
        part = _learn(name, column, rows, learnt)
        if part is None:
            learnt.columns.left_out[name] = "no word or piece of a word is in two training texts"
        else:
            parts.append(part)
    return parts


def _learn(name: str, column: pa.ChunkedArray, rows: RawRows, learnt: LearntInputs) -> TextColumn | None:
    """Learn a column of texts, and add its texts and their features to the prepared rows."""
    from models.ngrams.fit import fit_ngrams, ngram_features
    from models.ngrams.word_graph import usual_length
    from models.ngrams.words import word_index

    texts = plain_texts(column)
    training, rest = np.flatnonzero(rows.train), np.flatnonzero(~rows.train)
    seen = [texts[row] for row in training]
    fitted = fit_ngrams(seen, rows.answers(), rows.has_classes, rows.units.at(training), rows.weights)
    if fitted is None:
        return None
    model, own_features = fitted
    features = np.empty((len(texts), model.num_features), np.float32)
    features[training], features[rest] = own_features, ngram_features(model, [texts[row] for row in rest])
    learnt.add(name, column)
    learnt.add(TEXT_PREFIX + name, feature_column(features))
    learnt.files.ngrams[name] = model
    index = word_index(model)
    return TextColumn(
        name=name,
        num_terms=len(model.terms),
        num_features=model.num_features,
        length=usual_length(model, seen),
        words=list(index.words),
        stems=list(index.stems),
    )


def _values(column: pa.ChunkedArray, part: TextColumn) -> pa.ChunkedArray:
    del part
    return as_text(column)


def _feature_columns(
    parts: Sequence[TextColumn], inputs: Sequence[InputRecord], prepared: PreparedColumns, files: LearntFiles
) -> PreparedColumns:
    from models.ngrams.fit import ngram_features

    del inputs
    return {
        TEXT_PREFIX + part.name: pa.chunked_array(
            [feature_column(ngram_features(files.ngrams[part.name], plain_texts(prepared[part.name])))]
        )
        for part in parts
    }


def _encode(rows: pa.Table, parts: Sequence[TextColumn], files: LearntFiles) -> Tensors:
    features = [feature_matrix(rows.column(TEXT_PREFIX + part.name), part.num_features) for part in parts]
    return {"numeric": np.hstack(features), **_word_indices(rows, parts, files)}


def _word_indices(rows: pa.Table, parts: Sequence[TextColumn], files: LearntFiles) -> Tensors:
    """Return `words`: those of all texts and their stems, int32 (rows, word, 2); empty for texts without words."""
    from models.ngrams.word_graph import word_ids

    if not any(part.length for part in parts):
        return {}
    blocks = [
        word_ids(files.ngrams[part.name], plain_texts(rows.column(part.name)), part.length, *offsets)
        for part, offsets in zip(parts, word_offsets(parts), strict=True)
    ]
    return {"words": np.concatenate(blocks, axis=1)}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
    reads=holds_texts,
    misfit=_misfit,
    made=_feature_columns,
)
