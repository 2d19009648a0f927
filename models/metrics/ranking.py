"""Metrics of rankings: the rows of each group (of a query) are ordered by their scores and judged by their grades.

Legend: target (example, 2), each example's grade, a whole number >= 0, and the number of its group; prediction
(example,), the score. A metric is the mean over the groups whose grades differ: in the others every order is right.
`k` counts the first places of a group only; None counts all.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

import numpy as np

from models.metrics.evaluator import Array, Evaluator
from models.metrics.outputs import Prepare

_CUTOFF = re.compile(r"(ndcg|map|mrr)_at_([1-9]\d*)")


class _Order(NamedTuple):
    """The examples in the order of their groups and, within each, of falling scores.

    `examples` are positions, `group` numbers from 0 on, `place` counts from 0 on within a group; `tie` numbers the
    runs of equal scores; `differs` is 1.0 for the groups (group,) whose grades differ.
    """

    examples: Array
    group: Array
    place: Array
    tie: Array
    grade: Array
    differs: Array


def cutoff_of(name: str) -> tuple[str, int] | None:
    """Return metric and number of places of a name such as `ndcg_at_10`; None for all others."""
    match = _CUTOFF.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def groups_of(target: Array) -> Array:
    """Return the number of each example's group, from 0 on, int64 (example,)."""
    return np.unique(target[:, 1], return_inverse=True)[1].reshape(-1)


def has_order(target: Array) -> Array:
    """Return whether an example's group holds different grades, bool (example,); a metric counts only such groups."""
    group = groups_of(target)
    differs: Array = _differs(group, target[:, 0])[group]
    return differs


def ndcg(target: Array, prediction: Array, k: int | None = None) -> Evaluator:
    """Discounted cumulative gain over that of the best order; the gain is 2^grade - 1, ties share their places' mean.

    Source: Burges et al. (2005), ICML; ties as in McSherry and Najork (2008), ECIR, and scikit-learn's `ndcg_score`.
    """
    order = _ordered(target, prediction)
    counted = order.place < (k or len(target))
    discount = np.where(counted, 1 / np.log2(order.place + 2.0), 0.0)
    gain = np.exp2(order.grade) - 1
    shared = (np.bincount(order.tie, discount) / np.bincount(order.tie))[order.tie] if len(target) else discount
    best = order.grade[np.lexsort((-order.grade, order.group))]
    ideal = np.bincount(order.group, (np.exp2(best) - 1) * discount)
    reached = np.bincount(order.group, gain * shared)
    return _mean_of_groups(order, reached / np.where(ideal > 0, ideal, 1.0))


def average_precision(target: Array, prediction: Array, k: int | None = None) -> Evaluator:
    """Mean over a group's relevant rows (grade > 0) of the share of relevant rows down to each; ties in random order.

    At a cutoff the sum is divided by `k` if fewer rows can be in it than are relevant. Source: LightGBM's `map`.
    """
    order, places = _ordered(target, prediction), k or len(target)
    relevant = (order.grade > 0).astype(np.float64)
    num_hits = np.cumsum(relevant) - (np.cumsum(relevant) - relevant)[np.arange(len(target)) - order.place]
    share = np.where(order.place < places, relevant * num_hits / (order.place + 1), 0.0)
    num_relevant = np.minimum(np.bincount(order.group, relevant), places)
    return _mean_of_groups(order, np.bincount(order.group, share) / np.maximum(num_relevant, 1))


def reciprocal_rank(target: Array, prediction: Array, k: int | None = None) -> Evaluator:
    """One over the place of a group's first relevant row (grade > 0), 0 without one; ties in random order."""
    order = _ordered(target, prediction)
    counted = (order.grade > 0) & (order.place < (k or len(target)))
    best = np.zeros(len(order.differs))
    np.maximum.at(best, order.group[counted], 1 / (order.place[counted] + 1.0))
    return _mean_of_groups(order, best)


_BY_NAME = {"ndcg": ndcg, "map": average_precision, "mrr": reciprocal_rank}


def of_first_places(name: str, k: int) -> Prepare:
    """Return a metric by its name, of the first `k` places of each group."""
    return partial(_BY_NAME[name], k=k)


def drawn(target: Array, weight: Array) -> tuple[Array, Array]:
    """Return examples by whole-number weights, and their targets: a group drawn twice is two groups.

    Returns:
        Positions int64 (drawn,), and targets (drawn, 2).
    """
    counts = weight.astype(np.int64)
    index = np.repeat(np.arange(len(target)), counts)
    copy = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    targets = target[index]
    targets[:, 1] += copy * (target[:, 1].max(initial=0) + 1)
    return index, targets


def _ordered(target: Array, prediction: Array) -> _Order:
    score, group = np.asarray(prediction, dtype=np.float64), groups_of(target)
    # The order of the rows at the source may give the answer away, so it decides no tie. numpy never changes the
    # raw stream.
    shuffle = np.random.PCG64(0).random_raw(len(target))
    examples = np.lexsort((shuffle, -score, group))
    score, group = score[examples], group[examples]
    is_first = np.diff(group, prepend=-1) != 0
    place = np.arange(len(group)) - np.maximum.accumulate(np.where(is_first, np.arange(len(group)), 0))
    tie = np.cumsum(is_first | (np.diff(score, prepend=np.nan) != 0)) - 1
    grade = target[examples, 0].astype(np.float64)
    return _Order(examples, group, place, tie, grade, _differs(group, grade).astype(np.float64))


def _differs(group: Array, grade: Array) -> Array:
    """Return whether a group holds different grades, bool (group,)."""
    grade_of_group = np.empty(int(group.max(initial=-1)) + 1)
    grade_of_group[group] = grade
    return np.bincount(group, grade != grade_of_group[group]) > 0


def _mean_of_groups(order: _Order, values: Array) -> Evaluator:
    """Return the mean of values (group,); the weight of a group is the mean of its examples' weights."""
    sizes = np.maximum(np.bincount(order.group), 1)

    def mean(weight: Array) -> float:
        of_groups = np.bincount(order.group, weight[order.examples]) / sizes * order.differs
        total = of_groups.sum()
        return float(np.einsum("i,i->", values, of_groups) / total) if total > 0 else float("nan")

    return mean
