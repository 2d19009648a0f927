"""What the peers of the comparison get, and the encoders that several of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tests.bench.quality_case import Case

MOST_CATEGORIES = 250
SIDES = ("train", "validation", "test")


class Sides(NamedTuple):
    """Inputs and targets of the three sides of a split; of a series as `quality_series.windows` returns them.

    `limit_s` is what Loopline took on this split, in CPU-seconds, for a peer that takes a limit; `python` that of the
    peer's own environment.
    """

    inputs: Mapping[str, Any]
    targets: Mapping[str, pd.Series]
    limit_s: float
    python: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the target is a number."""
        return self.targets["train"].dtype.kind in "iuf"

    def both(self) -> tuple[Any, pd.Series]:
        """Return inputs and targets of training and validation rows."""
        inputs = [self.inputs[side] for side in SIDES[:2]]
        joined = pd.concat(inputs) if isinstance(inputs[0], pd.DataFrame) else np.concatenate(inputs)
        return joined, pd.concat([self.targets[side] for side in SIDES[:2]])


def probabilities(model: Any, inputs: Any) -> pd.DataFrame:
    """Return the probabilities of a fitted classifier, with its classes as columns."""
    return pd.DataFrame(model.predict_proba(inputs), columns=model.classes_)


def numbered(goals: Sequence[pd.Series]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the classes of the first goals, and all goals as their places; -1 for another class."""
    classes = np.unique(goals[0])
    places = pd.Index(classes)
    return classes, [places.get_indexer(pd.Index(goal)) for goal in goals]


def from_the_end(parts: Sequence[np.ndarray], goals: Sequence[pd.Series]) -> tuple[list[Any], list[Any], Any]:
    """Return flat windows and goals as differences from the target's last value, and these values of the last part."""
    ends = [part[:, -1, 0] for part in parts]
    moved = [goal.to_numpy() - end for goal, end in zip(goals, ends, strict=False)]
    flat = [np.c_[part[:, :, 0] - end[:, None], part[:, :, 1:].reshape(len(part), -1)]
            for part, end in zip(parts, ends, strict=True)]  # fmt: skip
    return flat, moved, ends[-1]


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with times as days since 1970, and truths as numbers."""
    times = frame.select_dtypes(include=["datetime", "datetimetz"]).columns
    days = {name: (frame[name] - pd.Timestamp(0, tz=frame[name].dt.tz)) / pd.Timedelta(days=1) for name in times}
    truths = {name: frame[name].astype(float) for name in frame.select_dtypes(include="bool").columns}
    return frame.assign(**days, **truths)


def categorical(frames: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the frames with texts as categories that all of them share."""
    frames = [plain(frame) for frame in frames]
    texts = [name for name in frames[0] if frames[0][name].dtype.kind not in "iufb"]
    known = {
        name: pd.CategoricalDtype(sorted(frames[0][name].dropna().astype(str).unique())[:MOST_CATEGORIES])
        for name in texts
    }
    return [
        frame.assign(**{name: frame[name].astype(str).astype(dtype) for name, dtype in known.items()})
        for frame in frames
    ]


def encoder(case: Case, frame: pd.DataFrame, vectors: Any) -> Any:
    """Return the encoder of a column of texts and of the columns beside it."""
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    texts = make_pipeline(FunctionTransformer(words), vectors)
    beside = frame.drop(columns=[case.text])
    if beside.empty or not len(beside.columns):
        return make_column_transformer((texts, case.text))
    return make_column_transformer((texts, case.text), (standard(beside), list(beside.columns)))


def standard(frame: pd.DataFrame) -> Any:
    """Return the encoder of a table: numbers standardised, texts one-hot."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    as_plain = plain(frame)
    numbers = [name for name in as_plain if as_plain[name].dtype.kind in "iufb"]
    texts = [name for name in as_plain if name not in numbers]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), texts),
    )
    return make_pipeline(FunctionTransformer(plain), columns)


def words(column: pd.Series) -> pd.Series:
    """Return texts with empty ones for those that are missing."""
    return column.fillna("").astype(str)
