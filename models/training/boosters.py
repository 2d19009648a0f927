"""LightGBM boosters behind the calls of one: a booster for each output of a row, for LightGBM predicts one.

All of them take the same number of rounds. Their text is that of LightGBM, or of several boosters a JSON list of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.kinds.task import PerTask
from models.metrics.metrics import METRICS, Array, quantile_of
from models.training.optimisation.losses import LARGEST_RATIO, Loss, loss_name
from models.training.tree_parameters import wrong_objective

Parameters = dict[str, Any]
Gradients = Callable[[NDArray[Any], Any], tuple[NDArray[Any], NDArray[Any]]]
"""An objective of our own: raw predictions and training set -> gradient and second derivative of each row."""
GAMMA = "gamma, log scale"
"""The gamma loss on the standardised logarithm, which is not among LightGBM's objectives."""
_THREADS = re.compile(r"^\[num_threads: \d+\]\n", re.MULTILINE)
_LEAVES = re.compile(r"^num_leaves=(\d+)$", re.MULTILINE)
NAMED = {"regression": "mse", "regression_l1": "l1"}
"""Objectives that a spec may name, and their losses."""
_REGRESSION = {
    "mse": {"objective": "regression", "metric": "l2"},
    "l1": {"objective": "regression_l1", "metric": "l1"},
    "relative_l1": {"objective": "regression_l1", "metric": "l1"},
    "pinball": {"objective": "quantile", "metric": "quantile"},
    "gamma": {"objective": GAMMA, "metric": "l2"},
}


class Boosters:
    """The boosters of a model, one for each output, or one for all classes.

    Args:
        boosters: The boosters, in the order of the outputs.
    """

    def __init__(self, boosters: Sequence[Any]) -> None:
        self._boosters = list(boosters)

    @classmethod
    def of_text(cls, text: str) -> Boosters:
        """Return the boosters that wrote a text."""
        import lightgbm

        return cls([lightgbm.Booster(model_str=part) for part in booster_texts(text)])

    @classmethod
    def first_round(
        cls,
        parameters: Sequence[Parameters],
        train_sets: Sequence[Any],
        before: Boosters | None,
        gradients: Gradients | None,
    ) -> Boosters:
        """Grow the first round of new boosters, or one more round after `before` with other parameters."""
        import lightgbm

        objective = {} if gradients is None else {"objective": gradients}
        earlier = before.boosters if before else [None] * len(parameters)
        return cls(
            [
                lightgbm.train(
                    {**parameters_of_model, **objective}, train_set, 1, init_model=model, keep_training_booster=True
                )
                for parameters_of_model, train_set, model in zip(parameters, train_sets, earlier, strict=True)
            ]
        )

    @property
    def boosters(self) -> list[Any]:
        """Each booster."""
        return self._boosters

    def update(self, gradients: Gradients | None) -> None:
        """Grow one more round of each."""
        for booster in self._boosters:
            booster.update(fobj=gradients)

    def raw(self, inputs: NDArray[Any], low: int, high: int, threads: int) -> NDArray[np.float64]:
        """Return what the trees of rounds `low` to `high`, or to the last (-1), add to the outputs: (row, output)."""
        num = high if high < 0 else high - low
        parts = [
            booster.predict(inputs, start_iteration=low, num_iteration=num, raw_score=True, num_threads=threads)
            for booster in self._boosters
        ]
        return np.concatenate([np.asarray(part, np.float64).reshape(len(inputs), -1) for part in parts], axis=1)

    def train_loss(self, ranks: Array | None = None) -> float:
        """Return the mean training loss of the boosters; of a ranking 1 - NDCG, as that of the validation rows.

        Args:
            ranks: Of a ranking: grade and group of each training row (row, 2).
        """
        if ranks is None:
            return float(np.mean([booster.eval_train()[0][2] for booster in self._boosters]))

        def loss(scores: Array, train_set: Any) -> tuple[str, float, bool]:
            del train_set  # LightGBM counts a group without relevant rows as 1, and breaks ties
            return "loss", 1 - METRICS["ndcg"].value(ranks, scores), False

        return float(self._boosters[0].eval_train(loss)[0][2])

    def to_text(self, rounds: int | None = None) -> str:
        """Return the text of the boosters, of their first `rounds` rounds or of all; alike for any threads."""
        texts = [_THREADS.sub("", booster.model_to_string(num_iteration=rounds)) for booster in self._boosters]
        return str(texts[0]) if len(texts) == 1 else json.dumps(texts)


def booster_texts(text: str) -> list[str]:
    """Return LightGBM's text of each booster."""
    return [str(part) for part in json.loads(text)] if text.startswith("[") else [text]


def objectives(preparation: Preparation, metric: str, objective: str = "auto") -> list[Parameters]:
    """Return LightGBM's objective and training metric of each booster.

    Args:
        preparation: The preparation of the data.
        metric: Short name of the goal's metric.
        objective: The one that the spec names; `auto` follows from the goal.

    Raises:
        UsageError: The goal does not go with the named objective.
    """
    return TREE_OBJECTIVES[preparation.task].parameters(preparation, metric, tree_loss(preparation, metric, objective))


def tree_loss(preparation: Preparation, metric: str, objective: str) -> str:
    """Return the loss that trees are grown by: that of the goal, or of absolute and squared errors the named one.

    Raises:
        UsageError: The goal does not go with the named objective.
    """
    loss = loss_name(preparation.task, preparation.target, metric)
    if objective == "auto":
        return loss
    named = TREE_OBJECTIVES[preparation.task].named
    if loss not in named.values():
        raise wrong_objective(objective, metric)
    return named[objective]


def _two_classes(preparation: Preparation, metric: str, loss: str) -> list[Parameters]:
    return [{"objective": "binary", "metric": "binary_logloss"}] * preparation.num_outputs


def _classes(preparation: Preparation, metric: str, loss: str) -> list[Parameters]:
    return [{"objective": "multiclass", "metric": "multi_logloss", "num_class": preparation.num_outputs}]


def _numbers(preparation: Preparation, metric: str, loss: str) -> list[Parameters]:
    quantile = quantile_of(metric)
    parameters_of_loss = {**_REGRESSION[loss], **({} if quantile is None else {"alpha": quantile})}
    return [parameters_of_loss] * preparation.num_outputs


def _quantiles(preparation: Preparation, metric: str, loss: str) -> list[Parameters]:
    outputs = preparation.target.outputs
    return [{"objective": "quantile", "metric": "quantile", "alpha": output.quantile} for output in outputs]


def _ranks(preparation: Preparation, metric: str, loss: str) -> list[Parameters]:
    return [{"objective": "lambdarank", "metric": "none"}]


@dataclass(frozen=True)
class TreeObjective:
    """How LightGBM learns a task."""

    parameters: Callable[[Preparation, str, str], list[Parameters]]
    """(preparation, metric, loss) -> objective and training metric of each booster."""
    named: Mapping[str, str] = field(default_factory=dict)
    """The objectives that a spec may name, and their losses."""


TREE_OBJECTIVES: PerTask[TreeObjective] = {
    "binary": TreeObjective(_two_classes),
    "multiclass": TreeObjective(_classes),
    "multilabel": TreeObjective(_two_classes),
    "regression": TreeObjective(_numbers, NAMED),
    "quantile": TreeObjective(_quantiles),
    "language": TreeObjective(_numbers),  # trees take no texts: refused before
    "ranking": TreeObjective(_ranks),
}


def num_leaves(text: str) -> int:
    """Return the number of leaves of all trees of a text of boosters."""
    return sum(int(number) for part in booster_texts(text) for number in _LEAVES.findall(part))


def gradients_of_loss(
    raw: NDArray[Any], train_set: Any, loss: Loss, kind: torch.dtype
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return gradient and second derivative of the user's loss; 1 where it has no positive second derivative."""
    output = torch.from_numpy(np.asarray(raw, dtype=np.float32)).reshape(-1, 1).requires_grad_()
    target = torch.from_numpy(np.asarray(train_set.get_label())).to(kind)
    (first,) = torch.autograd.grad(loss(output, target), output, create_graph=True)
    second = torch.zeros_like(first)
    if first.requires_grad:
        (second,) = torch.autograd.grad(first.sum(), output)
    second = torch.where(second > 0, second, 1.0)
    weight = 1.0 if train_set.get_weight() is None else train_set.get_weight()
    return weight * first.detach()[:, 0].numpy(), weight * second[:, 0].numpy()


def gamma_gradients(raw: NDArray[Any], train_set: Any, scale: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return gradient and second derivative of the gamma loss of `losses.py` in the standardised logarithm."""
    ratio = np.exp(np.minimum((train_set.get_label() - raw) * scale, LARGEST_RATIO))
    weight = 1.0 if train_set.get_weight() is None else train_set.get_weight()
    return weight * scale * (1 - ratio), weight * scale**2 * ratio
