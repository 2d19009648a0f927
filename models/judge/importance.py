"""Which columns a served model relies on: how much worse its goal is on rows in which a column is shuffled.

A column of the data is shuffled as it reaches the graph, so all that is derived from it there (gaps, ranks, words,
parts of a date) counts with it. The ceiling of the cost is in CPU-seconds: the rows are as many as it allows.

Source: Breiman (2001), Machine Learning 45, permutation importance.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import EllipsisType

import numpy as np

from models.data.preparation import Preparation
from models.judge.column_importance import ColumnImportance, Importances
from models.kinds.data_kind import PerDataKind
from models.metrics.metrics import Array

SHUFFLES = 5
MOST_ROWS = 1_000
LEAST_ROWS = 30
"""With fewer, no column is measured."""
MOST_COLUMNS = 30
"""Of more, those are measured whose shuffling moves the predictions of `LEAST_ROWS` rows most."""
MOST_CPU_S = 1.0

Feed = Mapping[str, Array]
Place = tuple[str, EllipsisType | tuple[EllipsisType, int]]
"""The input of the graph that holds a column, and where in it."""
Predict = Callable[[Iterable[Feed]], Array]
"""Returns the predictions for feeds, one after the other."""


def columns_of(preparation: Preparation) -> dict[str, Place]:
    """Return where in a graph's inputs the columns of the data are; empty for images and texts, which have none."""
    return _PLACES[preparation.kind](preparation)


def measure_importances(
    predict: Predict, feed: Feed, places: Mapping[str, Place], loss: Callable[[Array], float], seed: int = 0
) -> Importances | None:
    """Return what columns are worth, on rows that the model has not learnt from.

    Args:
        predict: Of the served model.
        feed: The rows: inputs of the graph, each (row, ...).
        places: Where each column is, see `columns_of`.
        loss: Of predictions for the first rows of the feed: how bad they are, by the goal.
        seed: Of the shuffles.

    Returns:
        None if there are too few rows, too many columns for `MOST_CPU_S`, or the goal is undefined on the rows.

    Cost: about `MOST_CPU_S`, twice that at most.
    """
    begin, available = time.process_time(), len(next(iter(feed.values())))
    if not places or available < LEAST_ROWS:
        return None
    few = _first(feed, LEAST_ROWS)
    before = predict([few])
    row_s = (time.process_time() - begin) / LEAST_ROWS
    if row_s * LEAST_ROWS * len(places) > MOST_CPU_S:
        return None
    names = list(places)
    if len(names) > MOST_COLUMNS:
        moved = np.abs(np.stack(_predicted(predict, few, [places[name] for name in names], 1, seed)) - before)
        distances = moved.reshape(len(names), -1).mean(axis=1)
        names = [names[place] for place in np.argsort(-distances, kind="stable")[:MOST_COLUMNS]]
    affordable = int(MOST_CPU_S / max(row_s, 1e-9) / (len(names) * SHUFFLES))
    num_rows = min(available, MOST_ROWS, max(LEAST_ROWS, affordable))
    rows = _first(feed, num_rows)
    whole = loss(predict([rows]))
    shuffled = _predicted(predict, rows, [places[name] for name in names], SHUFFLES, seed)
    losses = np.array([loss(prediction) - whole for prediction in shuffled]).reshape(len(names), SHUFFLES)
    if not np.isfinite(losses).all():
        return None
    return Importances(
        columns=sorted(map(_interval, names, losses), key=lambda column: -column.loss),
        num_columns=len(places),
        num_rows=num_rows,
        num_shuffles=SHUFFLES,
        cpu_s=round(time.process_time() - begin, 3),
    )


def _interval(name: str, losses: Array) -> ColumnImportance:
    from scipy.special import stdtrit

    mean = float(losses.mean())
    reach = float(stdtrit(len(losses) - 1, 0.975) * losses.std(ddof=1) / math.sqrt(len(losses)))
    return ColumnImportance(column=name, loss=mean, low=mean - reach, high=mean + reach)


def _predicted(predict: Predict, rows: Feed, places: Sequence[Place], shuffles: int, seed: int) -> list[Array]:
    """Return the predictions with each place shuffled so many times: one array for each place and shuffle."""
    predictions = predict(_shuffled(rows, places, shuffles, seed))
    return np.split(predictions, len(places) * shuffles)


def _shuffled(rows: Feed, places: Sequence[Place], shuffles: int, seed: int) -> Iterator[Feed]:
    source, num_rows = np.random.default_rng(seed), len(next(iter(rows.values())))
    orders = [source.permutation(num_rows) for _ in range(shuffles)]
    for name, where in places:
        for order in orders:
            values = rows[name].copy()
            values[where] = values[order][where]
            yield {**rows, name: values}


def _first(feed: Feed, num: int) -> Feed:
    return {name: values[:num] for name, values in feed.items()}


def _inputs(preparation: Preparation) -> dict[str, Place]:
    return {name: (name, ...) for name in preparation.columns}


def _steps(preparation: Preparation) -> dict[str, Place]:
    return {part.name: ("series", (..., place)) for place, part in enumerate(preparation.inputs)}


def _no_columns(preparation: Preparation) -> dict[str, Place]:
    return {}


_PLACES: PerDataKind[Callable[[Preparation], dict[str, Place]]] = {
    "table": _inputs,
    "image": _no_columns,
    "series": _steps,
    "text": _no_columns,
}
