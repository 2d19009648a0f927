"""Records of the prediction log: one JSON record for each request, without the columns that the spec redacts.

`{"ids", "at", "version", "score" | "scores", "names", "numbers", "texts", "raw", "pictures", "sent"}`: a predicted
request. `numbers` are the values of the inputs in `names`, one column after the other; the rest are columns by name.
`raw` are the callers' values; `pictures` are a server's own bytes. `sent` is there while a version is a shadow: texts,
or the windows of a series, float64, little-endian.
`{"ids", "labels", "at", "by"}`: labels. `at` is in microseconds since 1970.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from models.data.preparation import Preparation
from models.inference.input_schema import InputRows
from models.inference.loaded_model import Prediction
from models.inference.names import scores_of
from models.kinds.data_kind import PerDataKind
from models.serving.json_pieces import written
from models.serving.releases import place_of

BYTES = "bytes"
"""Key of bytes in JSON: `{"bytes": text}`, with the bytes in base64."""


class LoggedColumns(NamedTuple):
    """The columns of a model by the way in which a record holds them.

    `steps`: of windows, in their order, and `whole_texts`: stored only where a whole request is.
    """

    numbers: Sequence[str] = ()
    texts: Sequence[str] = ()
    steps: Sequence[str] = ()
    whole_texts: Sequence[str] = ()
    pictures: Sequence[str] = ()


_LOGGED: PerDataKind[Callable[[Preparation], LoggedColumns]] = {
    "table": lambda preparation: LoggedColumns(preparation.number_columns, preparation.text_columns),
    "image": lambda preparation: LoggedColumns(pictures=[preparation.required_pixels.image.column]),
    "series": lambda preparation: LoggedColumns(steps=[part.name for part in preparation.numeric]),
    "text": lambda preparation: LoggedColumns(whole_texts=[preparation.required_characters.column]),
}


class PredictionRecorder:
    """Makes the log records of one version's predictions, with the same content as batch prediction logs.

    Args:
        preparation: The version's.
        redacted: Columns that are not stored.
    """

    def __init__(self, preparation: Preparation, redacted: Collection[str] = ()) -> None:
        self._task = preparation.task
        self._left_out = {*redacted, *preparation.target.columns, preparation.target.name}
        logged = _LOGGED[preparation.kind](preparation)
        numbers, texts = logged.numbers, logged.texts
        self._places = [place for place, name in enumerate(numbers) if name not in redacted]
        self._numbers = [numbers[place] for place in self._places]
        self._takes_all = len(self._numbers) == len(numbers)
        self._texts = [name for name in texts if name not in redacted]
        self._names = orjson.Fragment(orjson.dumps(self._numbers))
        self._series = [(place, name) for place, name in enumerate(logged.steps) if name not in redacted]
        self._whole_texts = [name for name in logged.whole_texts if name not in self._left_out]
        self._pictures = [name for name in logged.pictures if name not in self._left_out]

    def record(
        self, ids: Sequence[str], at_us: int, rows: InputRows, answer: Prediction, *, whole: bool = False
    ) -> bytes:
        """Return the record of a predicted request.

        Args:
            ids: Ids of the rows.
            at_us: Time of the prediction, microseconds since 1970.
            rows: The rows of the request.
            answer: Their predictions.
            whole: Also store texts and windows, without which the request cannot be predicted again.
        """
        raw = {name: values for name, values in rows.extra.items() if name not in self._left_out}
        pictures = {name: [_bytes(picture) for picture in next(iter(rows.feed.values()))] for name in self._pictures}
        scores = scores_of(answer.outputs, self._task)
        record = {
            "ids": ids,
            "at": at_us,
            "version": answer.version,
            "score" if scores.ndim == 1 else "scores": scores,
            "names": self._names,
            "numbers": self._numbers_of(rows),
            "texts": {name: rows.feed[name].tolist() for name in self._texts},
            "raw": raw,
        }
        if pictures:
            record["pictures"] = pictures
        if whole:
            record["sent"] = self._inputs(rows)
        return written(record, len(ids))

    def _numbers_of(self, rows: InputRows) -> np.ndarray:
        """Return all numbers in one array, because one array costs a fraction of many to write."""
        if not self._numbers:
            return np.zeros(0)
        if rows.numbers is not None:
            return (rows.numbers if self._takes_all else rows.numbers[self._places]).ravel()
        return np.concatenate([rows.feed[name] for name in self._numbers])

    def _inputs(self, rows: InputRows) -> dict[str, list[Any]]:
        feed = rows.feed
        texts = {name: feed["text"].tolist() for name in self._whole_texts}
        return texts | {name: [_bytes(window[:, place]) for window in feed["series"]] for place, name in self._series}


def label_record(pairs: Iterable[tuple[str, str]], at_us: int, giver: str) -> bytes:
    """Return the record of the labels of one request, `(id, label)` each."""
    ids, labels = zip(*pairs, strict=True)
    return orjson.dumps({"ids": ids, "labels": labels, "at": at_us, "by": giver})


def sampled(ids: Sequence[str], share: float) -> list[int]:
    """Return the rows in a sample of that share: the same for the same ids, and independent of the canary's share."""
    return [row for row, row_id in enumerate(ids) if place_of(f"log {row_id}") < share]


def part_of(rows: InputRows, answer: Prediction, places: Sequence[int]) -> tuple[InputRows, Prediction]:
    """Return some of the rows, and their predictions."""
    feed = {name: values[places] for name, values in rows.feed.items()}
    extra = {name: [values[place] for place in places] for name, values in rows.extra.items()}
    outputs = {name: values[places] for name, values in answer.outputs.items()}
    return InputRows(feed, extra), Prediction(answer.project, answer.version, outputs)


def _bytes(values: np.ndarray) -> dict[str, str]:
    """Return the JSON form of the bytes of a picture (height, width, channel), or of a feature's window (step,)."""
    return {BYTES: base64.b64encode(values.tobytes()).decode()}
