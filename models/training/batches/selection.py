"""Selects the examples of a split that count: those of a fold, or the newest with a replayed part of the older."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import torch

from models import scratch
from models.distributed.order import seed_of
from models.kinds.task import PerTask, Task
from models.training.job import TrainingJob

Tensors = dict[str, torch.Tensor]
Targets = Callable[[], torch.Tensor]
Completion = Callable[[torch.Tensor, Targets, torch.Generator], torch.Tensor]

# The group or the time that decided a row's split: int64, stored beside the tensors that nets see.
KEY = "key"
FIRST_KEY = "first_key"
"""Of series: the time of an example's first horizon, where `KEY` is that of the last."""


def is_chosen(job: TrainingJob) -> bool:
    """Return whether training uses only some of its rows, or additional rows, so that the file cannot be streamed."""
    extra = job.stage == "pretrain" and "unlabelled" in job.tensors
    return extra or bool(job.pseudo) or (job.train.recent is not None and job.stage != "pretrain")


def sampled_rows(num: int, most: int, generator: torch.Generator) -> torch.Tensor:
    """Return the positions of `most` of so many rows, int64, ascending: as many of each million, by chance."""
    some = []
    for part in scratch.parts(num):
        drawn = torch.randperm(part.stop - part.start, generator=generator)
        count = most * part.stop // max(1, num) - most * part.start // max(1, num)
        some.append(drawn[:count].sort().values + part.start)
    return torch.cat(some)


def with_every_class(rows: torch.Tensor, targets: Targets, generator: torch.Generator) -> torch.Tensor:
    """Return sampled rows, and of each class that none of them has, its share of all rows: at least one.

    Args:
        rows: The positions of the sample, int64.
        targets: Returns the class of each row, from 0 on (row,).
        generator: Draws the rows that are added.
    """
    classes = targets()
    counts = torch.bincount(classes.long())
    lacking = (counts > 0) & (torch.bincount(classes[rows].long(), minlength=len(counts)) == 0)
    added = [rows]
    for label in torch.nonzero(lacking).flatten().tolist():
        places = torch.nonzero(classes == label).flatten()
        count = max(1, len(rows) * len(places) // len(classes))
        added.append(places[torch.randperm(len(places), generator=generator)[:count]])
    return torch.cat(added).sort().values if len(added) > 1 else rows


def as_drawn(rows: torch.Tensor, targets: Targets, generator: torch.Generator) -> torch.Tensor:
    """Return sampled rows of targets without classes as they are."""
    del targets, generator
    return rows


COMPLETED: PerTask[Completion] = {
    "binary": with_every_class,
    "multiclass": with_every_class,
    "multilabel": as_drawn,
    "regression": as_drawn,
    "quantile": as_drawn,
    "language": as_drawn,
    "ranking": as_drawn,
}
"""Completes a sample of rows by what it must not lack, from the targets of all rows."""


def learnt_rows(
    limit: int | None, seed: int, targets: torch.Tensor, task: Task, groups: torch.Tensor | None = None
) -> torch.Tensor | None:
    """Return the positions of the training rows that `train.rows` leaves, int64, ascending; None if it leaves all.

    Args:
        limit: The setting.
        seed: Of the training.
        targets: Of the training rows (row, ...).
        task: No class of the targets is left out.
        groups: Of a ranking the group of each row (row,), none of which is divided.
    """
    num = len(targets)
    if limit is None or num <= limit:
        return None
    generator = torch.Generator().manual_seed(seed_of("rows", seed))
    if groups is None:
        return COMPLETED[task](sampled_rows(num, limit, generator), lambda: targets, generator)
    different, places = torch.unique(groups, return_inverse=True)
    chosen = sampled_rows(len(different), max(1, len(different) * limit // num), generator)
    return torch.nonzero(torch.isin(places, chosen)).flatten()


def fold_of(
    target: torch.Tensor,
    num_folds: int,
    seed: int,
    blocks: bool = False,
    groups: torch.Tensor | None = None,
    times: torch.Tensor | None = None,
    ordered: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the fold of each example, int64 (n,).

    Args:
        target: Classes or values, of several outputs (n, output); each fold gets its share of every class, or of every
            range of values.
        num_folds: Number of folds.
        seed: Seed of the shuffle before examples are assigned to folds.
        blocks: Cut into k blocks in the order of time instead, as series and a split by time need.
        groups: The group of each example; no group is divided, and the folds are as equal as that allows. A class that
            would be missing in a fold is spread over the folds first.
        times: The time of each example, for blocks, at least k different ones: no block begins within a time. Default:
            the rows are in the order of time.
        ordered: Of a ranking: whether an example's group has an order, bool (n,); each fold gets its share of those.
    """
    count = len(target)
    if groups is not None:
        fold = _fold_of_groups(groups, num_folds, seed, ordered)
        is_class = ordered is None and target.ndim == 1 and not target.is_floating_point()
        return _with_every_class(fold, target, groups, num_folds) if is_class else fold
    if blocks:
        return torch.arange(count) * num_folds // count if times is None else _blocks_of_times(times, num_folds)
    if target.ndim > 1:  # several outputs: a row with more labels, or larger values
        target = target.float().mean(dim=1)
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(seed_of("fold", seed)))
    return _dealt(shuffled[torch.argsort(target[shuffled], stable=True)], torch.arange(count) % num_folds)


def _dealt(order: torch.Tensor, folds: torch.Tensor) -> torch.Tensor:
    """Return the fold of each example: the fold at its place in `order`."""
    fold = torch.empty_like(folds)
    fold[order] = folds
    return fold


def _blocks_of_times(times: torch.Tensor, num_folds: int) -> torch.Tensor:
    """Cut between the different times that are nearest to equal numbers of examples."""
    _, moment, counts = torch.unique(times, return_inverse=True, return_counts=True)
    until, first = counts.cumsum(0), 0
    block = torch.zeros_like(until)
    for cut in range(1, num_folds):
        ideal = -(-cut * len(times) // num_folds)
        nearest = int((until - ideal).abs().argmin()) + 1
        first = max(first + 1, min(nearest, len(until) - (num_folds - cut)))
        block[first:] = cut
    return block[moment]


def _fold_of_groups(groups: torch.Tensor, num_folds: int, seed: int, ordered: torch.Tensor | None) -> torch.Tensor:
    """Put each group, those with an order and the largest first, into the fold that has the fewest examples so far."""
    _, member, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    shuffled = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(seed_of("fold", seed)))
    dealt = shuffled[torch.argsort(sizes[shuffled], descending=True, stable=True)]
    if ordered is not None:
        is_first = torch.zeros(len(sizes), dtype=torch.int8).index_fill(0, member[ordered], 1)
        dealt = dealt[torch.argsort(is_first[dealt], descending=True, stable=True)]
    filled, folds = [(0, fold) for fold in range(num_folds)], []
    for size in sizes[dealt].tolist():
        num_examples, emptiest = filled[0]
        folds.append(emptiest)
        heapq.heapreplace(filled, (num_examples + size, emptiest))
    return _dealt(dealt, torch.tensor(folds))[member]


def _with_every_class(fold: torch.Tensor, target: torch.Tensor, groups: torch.Tensor, num_folds: int) -> torch.Tensor:
    """Return the folds; if one lacks a class, deal the groups anew, those of the rarest class first.

    Each group goes to the fold with the fewest examples of the rarest class in it. A class in fewer groups than folds
    remains missing in some.
    """
    classes, label = torch.unique(target, return_inverse=True)
    _, member = torch.unique(groups, return_inverse=True)
    counts = torch.zeros(int(member.max()) + 1, len(classes), dtype=torch.int64)
    counts.index_put_((member, label), torch.ones_like(label), accumulate=True)
    has_class = torch.zeros(num_folds, len(classes), dtype=torch.bool).index_put_((fold, label), torch.tensor(True))
    if has_class.all():
        return fold
    rarity = torch.argsort(torch.argsort((counts > 0).sum(dim=0), stable=True))
    rarest = torch.argmin(torch.where(counts > 0, rarity, len(classes)), dim=1)
    sizes, filled = counts.sum(dim=1), torch.zeros(num_folds, len(classes), dtype=torch.int64)
    fold_of_group = torch.empty_like(sizes)
    for group in sorted(
        range(len(counts)), key=lambda group_index: (int(rarity[rarest[group_index]]), -int(sizes[group_index]))
    ):
        imbalance = filled[:, rarest[group]] * len(target) + filled.sum(dim=1)
        emptiest = int(torch.argmin(imbalance))
        fold_of_group[group] = emptiest
        filled[emptiest] += counts[group]
    return fold_of_group[member]


def recent_of(tensors: Tensors, keep: torch.Tensor | None, job: TrainingJob) -> torch.Tensor | None:
    """Select the newest examples in `keep` and some older ones, by time for a split by time, else by row order.

    Of a split by group they are whole groups, each as new as its newest example.
    """
    recent = job.train.recent
    if recent is None or job.stage == "pretrain":
        return keep
    among = torch.arange(len(tensors["target"])) if keep is None else keep
    units = torch.arange(len(among))
    if job.fold_by == "blocks" and KEY in tensors:
        among = among[torch.argsort(tensors[KEY][among], stable=True)]
    elif job.fold_by == "groups" and KEY in tensors:
        units = _by_newest(tensors[KEY][among])
    num = int(units.max()) + 1
    num_new = max(1, round(recent.share * num))
    older = torch.arange(num - num_new)
    generator = torch.Generator().manual_seed(seed_of("replay", job.train.seed))
    replayed = older[torch.randperm(len(older), generator=generator)[: round(recent.replay * len(older))]]
    return among[(units >= num - num_new) | torch.isin(units, replayed)].sort().values


def _by_newest(groups: torch.Tensor) -> torch.Tensor:
    """Return the number of each example's group (n,), from 0 on in the order of the groups' last examples."""
    _, member = torch.unique(groups, return_inverse=True)
    last = torch.zeros(int(member.max()) + 1, dtype=torch.int64)
    last = last.scatter_reduce(0, member, torch.arange(len(member)), "amax")
    return torch.argsort(torch.argsort(last))[member]
