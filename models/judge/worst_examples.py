"""The test rows on which a version is furthest off: what was true, what it predicted, and the row itself.

A row of a table is shown by the model's own columns, an image as a small PNG, a series by the last step before the
forecast, a text by its window. `without_rows` leaves the rows out where the spec says so.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from models.data import feeds
from models.data.preparation import Preparation
from models.data.prepared_rows import rows_of
from models.data.target_encoding import OutputColumn
from models.inputs.record import Form
from models.judge.evidence import Evidence
from models.judge.held_out import EXAMPLE_LOSSES
from models.judge.worst_rows import Value, WorstExample, WorstExamples
from models.kinds.data_kind import PerDataKind
from models.kinds.task import PerTask
from models.metrics.metrics import Array
from models.project_spec.reserved_columns import ROW_COLUMN

MOST_EXAMPLES = 100
MOST_COLUMNS = 30
MOST_CHARACTERS = 200
"""Of a value, at most: with 100 rows of 30 columns the file has 600 kB at most."""
MOST_PIXELS = 96
"""Of a picture's longer side."""
MOST_OUTPUTS = 4


def worst_examples(prepared: Path, preparation: Preparation, evidence: Evidence) -> WorstExamples:
    """Return the test rows with the largest loss of the challenger.

    Args:
        prepared: The prepared folder.
        preparation: Of the exported model.
        evidence: On all test rows.
    """
    places, evidence = np.flatnonzero(evidence.weighs), evidence.weighing
    losses = EXAMPLE_LOSSES[evidence.task](evidence.target, evidence.challenger)
    worst = np.argsort(-losses, kind="stable")[:MOST_EXAMPLES]
    order = np.sort(worst)
    contents = dict(zip(order.tolist(), _CONTENTS[preparation.kind](prepared, preparation, places[order]), strict=True))
    outcomes = _OUTCOMES[evidence.task](evidence.target[worst], evidence.decided[worst], preparation)
    examples = [
        contents[int(place)].model_copy(update={"loss": float(losses[place]), "truth": truth, "predicted": predicted})
        for place, (truth, predicted) in zip(worst, outcomes, strict=True)
    ]
    return WorstExamples(loss=LOSS_WORDS[evidence.task], num_samples=len(losses), examples=examples)


class _Outcome(NamedTuple):
    truth: str
    predicted: str


def _classes(target: Array, decided: Array, preparation: Preparation) -> list[_Outcome]:
    names = preparation.target.class_names
    predicted = (decided >= 0.5) if decided.ndim == 1 else decided.argmax(axis=1)
    return [_Outcome(names[int(true)], names[int(number)]) for true, number in zip(target, predicted, strict=True)]


def _labels(target: Array, decided: Array, preparation: Preparation) -> list[_Outcome]:
    names = np.array(preparation.target.names, object)
    return [
        _Outcome(*(", ".join(names[flags >= 0.5]) or "none" for flags in row))
        for row in zip(target, decided, strict=True)
    ]


def _numbers(target: Array, decided: Array, preparation: Preparation) -> list[_Outcome]:
    outputs = preparation.target.outputs
    return [
        _Outcome(_number(true, outputs), _number(value, outputs)) for true, value in zip(target, decided, strict=True)
    ]


def _number(value: Array, outputs: Sequence[OutputColumn]) -> str:
    if not np.ndim(value):
        return f"{float(value):.6g}"
    if len(value) != len(outputs):
        return f"{float(value[0]):.6g}"
    named = [f"{output.name} {number:.6g}" for output, number in zip(outputs, value, strict=True)]
    return ", ".join([*named[:MOST_OUTPUTS], *["…"] * (len(named) > MOST_OUTPUTS)])


def _nothing(target: Array, decided: Array, preparation: Preparation) -> list[_Outcome]:
    del decided, preparation
    return [_Outcome("", "")] * len(target)


_OUTCOMES: PerTask[Callable[[Array, Array, Preparation], list[_Outcome]]] = {
    "binary": _classes,
    "multiclass": _classes,
    "multilabel": _labels,
    "regression": _numbers,
    "quantile": _numbers,
    "language": _nothing,
    "ranking": _numbers,
}
LOSS_WORDS: PerTask[str] = {
    "binary": "1 minus the probability of the true class",
    "multiclass": "1 minus the probability of the true class",
    "multilabel": "mean error of the probabilities of the labels, each relative to its spread",
    "regression": "absolute error; of several outputs each relative to its spread",
    "quantile": "mean absolute error of the quantiles, each relative to its spread",
    "language": "bits per character",
    "ranking": "distance of the score from the grade",
}
"""What the loss of a row is, in words."""


def _of_table(prepared: Path, preparation: Preparation, positions: np.ndarray) -> list[WorstExample]:
    feed = feeds.feed_at(prepared, "test", preparation, positions)
    forms = {part.name: part.form for part in preparation.column_inputs}
    columns = {
        name: [_VALUES[forms[name]](value) for value in feed[name]] for name in preparation.columns[:MOST_COLUMNS]
    }
    numbers = _row_numbers(prepared, positions)
    return [
        WorstExample(row=row, loss=0.0, values={name: values[place] for name, values in columns.items()})
        for place, row in enumerate(numbers)
    ]


def _of_image(prepared: Path, preparation: Preparation, positions: np.ndarray) -> list[WorstExample]:
    images = feeds.feed_at(prepared, "test", preparation, positions)["image"]
    numbers = _row_numbers(prepared, positions)
    return [WorstExample(row=row, loss=0.0, picture=_png(image)) for row, image in zip(numbers, images, strict=True)]


def _of_series(prepared: Path, preparation: Preparation, positions: np.ndarray) -> list[WorstExample]:
    windows = feeds.feed_at(prepared, "test", preparation, positions)["series"]
    names = [part.name for part in preparation.inputs][:MOST_COLUMNS]
    return [
        WorstExample(loss=0.0, values={name: _plain(step[place]) for place, name in enumerate(names)})
        for step in windows[:, -1]
    ]


def _of_text(prepared: Path, preparation: Preparation, positions: np.ndarray) -> list[WorstExample]:
    windows = feeds.feed_at(prepared, "test", preparation, positions)["text"]
    column = preparation.required_characters.column
    texts = ["".join(map(chr, window))[:MOST_CHARACTERS] for window in windows]
    return [WorstExample(loss=0.0, values={column: text}) for text in texts]


_CONTENTS: PerDataKind[Callable[[Path, Preparation, np.ndarray], list[WorstExample]]] = {
    "table": _of_table,
    "image": _of_image,
    "series": _of_series,
    "text": _of_text,
}


def _row_numbers(prepared: Path, positions: np.ndarray) -> list[int]:
    return [1 + row for row in rows_of(prepared, "test", [ROW_COLUMN], positions).column(0).to_pylist()]


def _moment(seconds: float) -> str | None:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}" if np.isfinite(seconds) else None


def _text(value: str) -> str | None:
    return str(value)[:MOST_CHARACTERS] or None


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


_VALUES: dict[Form, Callable[[Any], Value]] = {"number": _plain, "time": _moment, "category": _text, "text": _text}
"""A value as pages show it, by the form in which rows give it."""


def _png(pixels: np.ndarray) -> str:
    """Return an image, uint8 (height, width, channel), as a small file."""
    from PIL import Image

    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    picture.thumbnail((MOST_PIXELS, MOST_PIXELS))
    stream = io.BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()
