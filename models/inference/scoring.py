"""Scoring of rows by an exported model: columns for the caller, and the scores for the prediction log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from models.data.preparation import Preparation
from models.errors import TrainingError
from models.inference.names import output_names
from models.inference.portable import BITS_PER_CHAR, read_texts
from models.inference.predict import Feed, session

RUN_ROWS = 4096
"""Rows of one run of the graph: a net's activations stay small and fit into the processor's cache."""


@dataclass(frozen=True)
class ScoredRows:
    """Predictions of some rows.

    `shown`: the columns for the caller: classification `label` and `probability_<class>` of each class, regression
    `prediction`, text `next_character`, `probability` and `bits_per_char`. `score` (rows,): the value for the log, that
    is
    the probability of the positive class, the prediction, or the bits per character. `scores` (rows, num_classes):
    replaces it for multiclass.
    """

    shown: pa.Table
    score: np.ndarray | None
    scores: np.ndarray | None


class Scorer:
    """An exported model, ready to score.

    Args:
        folder: The folder with `model.onnx` and `preparation.json`.
        threads: Threads of ONNX Runtime.

    Raises:
        StoreError: The file is absent or is no ONNX model.
    """

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self.preparation = Preparation.load(folder)
        self._names = output_names(self.preparation)
        self._session = session(folder / "model.onnx", threads)

    def score(self, feed: Feed) -> ScoredRows:
        """Score rows in the form of `models.inference.arrow_rows`.

        Raises:
            TrainingError: The model cannot run on these rows.
        """
        outputs = self._run(feed)
        if "prediction" in outputs:
            shown = pa.table({"prediction": pa.array(outputs["prediction"].astype(np.float64))})
            return ScoredRows(shown, outputs["prediction"].astype(np.float64), None)
        chances = outputs["probabilities"].astype(np.float64)
        columns = {"label": pa.array(outputs["label"], pa.string())}
        classes = self.preparation.target.classes or []
        columns |= {f"probability_{name}": pa.array(chances[:, at]) for at, name in enumerate(classes)}
        if self.preparation.task == "binary":
            return ScoredRows(pa.table(columns), chances[:, 1], None)
        return ScoredRows(pa.table(columns), None, chances)

    def read(self, lines: list[str]) -> ScoredRows:
        """Score texts with a text model."""
        characters = self.preparation.characters
        assert characters is not None
        columns = read_texts(self._session, lines, characters.alphabet, characters.length)
        return ScoredRows(pa.table(columns), columns[BITS_PER_CHAR], None)

    def _run(self, feed: Feed) -> dict[str, np.ndarray]:
        rows = len(next(iter(feed.values())))
        parts = []
        for start in range(0, rows, RUN_ROWS):
            piece = {name: values[start : start + RUN_ROWS] for name, values in feed.items()}
            try:
                parts.append(self._session.run(self._names, piece))
            except Exception as error:
                raise TrainingError(f"the exported model cannot run on these rows: {error}") from error
        return {
            name: np.concatenate(joined) for name, joined in zip(self._names, zip(*parts, strict=True), strict=True)
        }
