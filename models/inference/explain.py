"""Explanations: what each column contributes to a prediction, by Shapley values estimated in one call.

A column's contribution is the change of the prediction when the column's value replaces a background row's value. It
is averaged over orders in which columns are replaced and over background rows. The contributions of a row add up to
its prediction minus the base value, which is the mean prediction over the background. The method needs only the graph.

Source: Erik Strumbelj and Igor Kononenko (2014), Explaining prediction models and individual predictions with feature
contributions; each order with its reverse: Rory Mitchell et al. (2022), Sampling Permutations for Shapley Value
Estimation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from models.data.preparation import Preparation
from models.errors import DataError
from models.inference.names import BACKGROUND_FILE
from models.inference.portable import LABEL, PREDICTION, PROBABILITIES, PROBABILITY
from models.inference.predict import Feed
from models.kinds.data_kind import PerDataKind

MOST_EVALUATIONS = 8192
"""Most rows that the model predicts for the explanations of one request."""
SEED = 0
"""Seed of the orders: the same rows get the same explanation each time."""


@dataclass(frozen=True)
class Explanation:
    """The explanation of one row: `value` is `base` plus the sum of `contributions`, in the unit of the output `of`."""

    of: str
    base: float
    value: float
    contributions: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON data."""
        return {"of": self.of, "base": self.base, "value": self.value, "contributions": self.contributions}


def explained_output(answers: Mapping[str, np.ndarray], classes: Sequence[str], row: int) -> tuple[str, np.ndarray]:
    """Return the name of the output that explains a row's prediction, and its values for all rows: float64 (row,).

    It is the probability of the class that the row is predicted to be of, or the predicted number.
    """
    labels = answers.get(LABEL)
    if labels is None:
        return PREDICTION, answers[PREDICTION].reshape(len(answers[PREDICTION]), -1)[:, 0].astype(np.float64)
    index = classes.index(labels[row])
    return f"{PROBABILITY}_{classes[index]}", answers[PROBABILITIES][:, index].astype(np.float64)


def _taken_column(taken: np.ndarray, name: str, columns: Sequence[str]) -> np.ndarray:
    return taken[None, :, :, columns.index(name)]


def _taken_steps(taken: np.ndarray, name: str, columns: Sequence[str]) -> np.ndarray:
    del name, columns
    return taken[None, :, :, None, :]  # one column in all steps of a window together


_TAKEN_AT: PerDataKind[Callable[[np.ndarray, str, Sequence[str]], np.ndarray]] = {
    "table": _taken_column,
    "image": _taken_column,
    "series": _taken_steps,
    "text": _taken_column,
}
"""Whether the row's value is used along each path, in the shape of an input of the graph."""


class Explainer:
    """Explains the predictions of one version.

    Args:
        preparation: The version's.
        background: Rows of the training data, as inputs of the graph.
    """

    def __init__(self, preparation: Preparation, background: Feed) -> None:
        self.columns = preparation.columns
        self._classes = preparation.target.class_names
        self._taken_at = _TAKEN_AT[preparation.kind]
        self._background = background
        size = len(next(iter(background.values())))
        rng = np.random.default_rng(SEED)
        orders = np.array([rng.permutation(len(self.columns)) for _ in range(size)])
        self._orders = np.concatenate([orders, orders[:, ::-1]])
        self._starts = np.tile(np.arange(size), 2)
        ranks = np.argsort(self._orders, axis=1)
        steps = np.arange(1, len(self.columns))
        self._taken = ranks[:, None, :] < steps[None, :, None]  # (path, step, column): whether the row's value is used

    @classmethod
    def load(cls, folder: Path, preparation: Preparation) -> Explainer | None:
        """Return the explainer of a version; None for one without background rows: texts, images, older versions.

        None as well for several outputs of a row: an explanation is of one number.
        """
        path = folder / BACKGROUND_FILE
        if preparation.target.outputs or not path.exists():
            return None
        document = orjson.loads(path.read_bytes())
        texts = preparation.text_columns
        rows = {name: np.array(values, object if name in texts else float) for name, values in document.items()}
        return cls(preparation, rows)

    def evaluations(self, rows: int) -> int:
        """Return how many rows the model must predict to explain that many rows."""
        return len(self._orders) // 2 + rows * (1 + self._taken[..., 0].size)

    def check(self, rows: int) -> None:
        """Refuse more rows than one request may have explained.

        Raises:
            DataError: The message has the limit.
        """
        fixed, per_row = self.evaluations(0), self.evaluations(1) - self.evaluations(0)
        max_rows = (MOST_EVALUATIONS - fixed) // per_row
        if max_rows < 1:
            raise DataError(
                f"explain: {len(self.columns)} columns are too many to be explained within a request: leave `explain` "
                "out, or train on fewer columns (data.features.drop)"
            )
        if rows > max_rows:
            raise DataError(
                f"explain: got {rows} rows, expected {max_rows} at most of {len(self.columns)} columns each"
            )

    def question(self, feed: Feed) -> Feed:
        """Return all rows that the model must predict, in one feed: background, rows, and mixtures of the two."""
        return {name: self._between(name, np.asarray(values)) for name, values in feed.items()}

    def explanations(self, rows: int, answers: Mapping[str, np.ndarray]) -> list[Explanation]:
        """Compute the explanations of the rows from the predictions of `question`.

        Args:
            rows: Number of rows.
            answers: The graph's outputs for the whole feed of `question`.
        """
        size, explanations = len(self._orders) // 2, []
        for row in range(rows):
            output, values = explained_output(answers, self._classes, size + row)
            between = values[size + rows :].reshape(rows, *self._taken.shape[:2])[row]
            explanations.append(self._explanation(output, values[:size], float(values[size + row]), between))
        return explanations

    def _explanation(self, output: str, background: np.ndarray, value: float, between: np.ndarray) -> Explanation:
        """Compute one row's explanation from its predictions along each path (path, step)."""
        ends = np.full(len(self._orders), value)
        along = np.concatenate([background[self._starts][:, None], between, ends[:, None]], axis=1)
        changes = np.empty_like(along[:, 1:])
        np.put_along_axis(changes, self._orders, np.diff(along, axis=1), axis=1)
        mean = changes.mean(axis=0).tolist()
        return Explanation(output, float(background.mean()), value, dict(zip(self.columns, mean, strict=True)))

    def _between(self, name: str, rows: np.ndarray) -> np.ndarray:
        background = np.asarray(self._background[name])
        is_taken = self._taken_at(self._taken, name, self.columns)
        mixed = np.where(is_taken, rows[:, None, None], background[self._starts][None, :, None])
        return np.concatenate([background, rows, mixed.reshape(-1, *rows.shape[1:])])
