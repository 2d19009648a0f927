"""Active learning: the choice of unlabelled examples to label, so that few labels improve the model most."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from models.data.preparation import Preparation
from models.inputs.categorical.rows import category_indices
from models.inputs.datetime.record import DatetimeInput
from models.inputs.datetime.rows import datetime_features
from models.inputs.numeric.record import NumericInput
from models.inputs.numeric.rows import encode_numeric
from models.inputs.record import CategoryRecord, Form, TextRecord
from models.inputs.types import as_text
from models.ngrams.columns import plain_texts

CANDIDATES = 10
"""Candidates for each requested example; diversity is weighed among them. Source: beta in Zhdanov (2019), 10 to 50."""
CELL = 0.25
"""Rows within about this many standard deviations of each other in every input are near-duplicates."""
WORD_AXES = 8
"""Axes to which the words of a text are hashed: of many more, each would be less than a `CELL`, and all texts alike."""
_BLOCK = 1024


def uncertainty(chances: np.ndarray) -> np.ndarray:
    """Return one minus the margin between the two most probable classes (rows,): 1 is a tie, 0 is certain.

    Source: Scheffer, Decomain, Wrobel, "Active hidden Markov models for information extraction", 2001; Settles, "Active
    learning literature survey", 2009, section 3.1.

    Args:
        chances: Probabilities (rows, num_classes).
    """
    if not len(chances):
        return np.zeros(0)
    ordered = np.partition(chances, -2, axis=1)
    margins: np.ndarray = 1.0 - (ordered[:, -1] - ordered[:, -2])
    return margins


def positions(rows: pa.Table, preparation: Preparation, prefix: str = "") -> np.ndarray:
    """Return rows of a table as points (rows, dimension): standardised numbers, categories as axes, hashed words.

    The distance of two rows with different categories, or with texts that share no word, equals that of two numbers one
    standard deviation apart.
    """
    parts: list[np.ndarray] = []
    for form, points_of in _POINTS.items():
        inputs = [part for part in preparation.inputs if part.form == form]
        parts += points_of([rows.column(prefix + part.name) for part in inputs], inputs)
    return np.concatenate([np.zeros((rows.num_rows, 1), np.float32), *parts], axis=1)


def thinned(uncertain: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the indices of the most uncertain example in each cell of a grid of width `CELL`, most uncertain first.

    This happens before the selection of the most uncertain: otherwise only a group of near-duplicates might remain.
    """
    order = np.argsort(-uncertain, kind="stable")
    cells = np.round(points[order] / CELL).astype(np.int64)
    _, first = np.unique(cells, axis=0, return_index=True)
    first_rows: np.ndarray = order[np.sort(first)]
    return first_rows


def choose_uncertain(uncertain: np.ndarray, points: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of `count` examples that are uncertain and different from each other, most uncertain first.

    The most uncertain examples without near-duplicates form `count` clusters, by k-means weighted by the uncertainty;
    the example nearest to each cluster's centre is chosen. If fewer examples differ, fewer are returned.

    Source: Zhdanov, "Diverse mini-batch active learning", 2019, arXiv:1901.05954, algorithm 2.

    Args:
        uncertain: (rows,), higher is more uncertain.
        points: (rows, dimension); similar rows are near each other.
        count: How many examples to choose.
    """
    candidates = thinned(uncertain, points)[: CANDIDATES * count]
    if len(candidates) <= count:
        return candidates
    weights = np.maximum(uncertain[candidates], 1e-9)
    chosen = candidates[_medoids(points[candidates].astype(np.float64), weights, count)]
    ranked: np.ndarray = chosen[np.argsort(-uncertain[chosen], kind="stable")]
    return ranked


def choose_novel(
    points: np.ndarray, predicted: np.ndarray, known_points: np.ndarray, known_values: np.ndarray, count: int
) -> np.ndarray:
    """Return the indices of `count` examples whose inputs and predictions are both far from the labelled ones.

    This is for regression. It repeatedly chooses the example whose smallest product of the two distances is largest,
    and
    adds it to the known ones.

    Source: Wu, Lin, Huang, "Active learning for regression using greedy sampling", Information Sciences 474 (2019),
    equations 7 to 9 (iGS).

    Args:
        points: (rows, dimension) of the unlabelled.
        predicted: (rows,) of the unlabelled.
        known_points: (known, dimension).
        known_values: (known,) labels, in the unit of `predicted`.
        count: How many examples to choose.
    """
    nearest = np.full(len(points), np.inf)
    for start in range(0, len(known_points), _BLOCK):
        block = slice(start, start + _BLOCK)
        away = _distances(points, known_points[block]) * np.abs(predicted[:, None] - known_values[block])
        nearest = np.minimum(nearest, away.min(axis=1))
    chosen: list[int] = []
    for _ in range(min(count, len(points))):
        best = int(nearest.argmax())
        if chosen and nearest[best] <= 0:
            break  # every remaining example equals a known one
        chosen.append(best)
        away = _distances(points, points[[best]])[:, 0] * np.abs(predicted - predicted[best])
        nearest = np.minimum(nearest, away)
        nearest[best] = -1.0
    return np.array(chosen, dtype=np.int64)


def _hashed_words(texts: Sequence[str]) -> np.ndarray:
    """Return texts as points (text, `WORD_AXES`) by their words alone: a version's vocabulary is in its graph.

    Source: feature hashing, Weinberger et al., "Feature hashing for large scale multitask learning", 2009.
    """
    points = np.zeros((len(texts), WORD_AXES), np.float32)
    for row, text in enumerate(texts):
        for word in text.casefold().split():
            code = zlib.crc32(word.encode())
            points[row, code % WORD_AXES] += 1.0 if code & 1 << 16 else -1.0
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    scaled: np.ndarray = points / np.maximum(norms, 1e-9) * np.float32(np.sqrt(0.5))
    return scaled


Values = Sequence[pa.ChunkedArray]


def _numbers(columns: Values, inputs: Sequence[NumericInput]) -> list[np.ndarray]:
    return [encode_numeric(_float(column), part)[:, None] for column, part in zip(columns, inputs, strict=True)]


def _times(columns: Values, inputs: list[DatetimeInput]) -> list[np.ndarray]:
    return [datetime_features(np.stack([_float(column) for column in columns], axis=1), inputs)] if columns else []


def _categories(columns: Values, inputs: Sequence[CategoryRecord]) -> list[np.ndarray]:
    """Return an axis for each category of these rows; none where there is one alone."""
    indices = [category_indices(as_text(column), part) for column, part in zip(columns, inputs, strict=True)]
    shares = [np.unique(places, return_inverse=True) for places in indices]
    size = np.float32(np.sqrt(0.5))
    return [np.eye(len(present), dtype=np.float32)[row] * size for present, row in shares if len(present) > 1]


def _texts(columns: Values, _: Sequence[TextRecord]) -> list[np.ndarray]:
    return [_hashed_words(plain_texts(column)) for column in columns]


_POINTS: dict[Form, Callable[[Values, Any], list[np.ndarray]]] = {
    "number": _numbers,
    "time": _times,
    "category": _categories,
    "text": _texts,
}
"""Points (row, dimension) of the columns of each form."""


def _float(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = column.cast(pa.float64()).to_numpy()
    return values


def _medoids(points: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Return the point nearest to the centre of each cluster of a weighted k-means."""
    from sklearn.cluster import KMeans

    clusters = KMeans(count, n_init=1, tol=0.0, random_state=0).fit(points, sample_weight=weights)
    away = np.linalg.norm(points - clusters.cluster_centers_[clusters.labels_], axis=1)
    order = np.argsort(away, kind="stable")
    _, first = np.unique(clusters.labels_[order], return_index=True)
    nearest: np.ndarray = order[first]
    return nearest


def _distances(points: np.ndarray, other_points: np.ndarray) -> np.ndarray:
    """Euclidean distances (points, others)."""
    squares = (points**2).sum(axis=1)[:, None] + (other_points**2).sum(axis=1) - 2.0 * points @ other_points.T
    distances: np.ndarray = np.sqrt(np.maximum(squares, 0.0))
    return distances
