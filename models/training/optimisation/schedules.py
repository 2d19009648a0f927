"""Learning rate schedules by name: functions of the step, and for plateaus also of the goal's metric."""

from __future__ import annotations

import math
from collections.abc import Callable

from models.project_spec.blocks import Train
from models.training.checkpoints.state import Progress

# Source: Smith and Topin 2018 (super-convergence), with the shares of torch's OneCycleLR.
_CYCLE_RISE, _CYCLE_START, _CYCLE_END = 0.3, 1 / 25, 1 / 25e4


def learning_rate(train: Train, step: int, num_steps: int, drops: int = 0) -> float:
    """Return the learning rate of step `step` of `num_steps`: a linear warmup, then the schedule.

    Args:
        train: Names the schedule.
        step: Optimiser step, from 0.
        num_steps: Steps of the whole training.
        drops: Number of plateaus so far.
    """
    if train.schedule == "one_cycle":
        return train.lr * _one_cycle(step / max(1, num_steps))
    rise = round(train.warmup * num_steps)
    if step < rise:
        return train.lr * (step + 1) / (rise + 1)
    if train.schedule == "plateau":
        return train.lr * train.decay**drops
    progress = (step - rise) / max(1, num_steps - rise)
    return train.lr * _FALL[train.schedule](progress, train)


def is_plateau(progress: Progress, train: Train) -> bool:
    """Return whether the model did not improve and lr did not fall in the last `plateau_patience` epochs."""
    since = max(progress.improved_epoch, progress.last_drop)
    return train.schedule == "plateau" and progress.epoch - since >= train.plateau_patience


def _cosine(progress: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * progress))


def _one_cycle(progress: float) -> float:
    if progress < _CYCLE_RISE:
        return _CYCLE_START + (1 - _CYCLE_START) * (1 - _cosine(progress / _CYCLE_RISE))
    return _CYCLE_END + (1 - _CYCLE_END) * _cosine((progress - _CYCLE_RISE) / (1 - _CYCLE_RISE))


_FALL: dict[str, Callable[[float, Train], float]] = {
    "constant": lambda progress, train: 1.0,
    "linear": lambda progress, train: 1 - progress,
    "cosine": lambda progress, train: _cosine(progress),
    "restarts": lambda progress, train: _cosine(
        progress * train.cycles % 1
    ),  # Source: Loshchilov and Hutter 2017 (SGDR)
    "step": lambda progress, train: train.decay ** int(progress * train.cycles),
    "exponential": lambda progress, train: train.decay**progress,
}
