"""Automatic batch size: doubled until memory runs out or the speed stays, halved if the first size does not fit."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from models.distributed.world import World
from models.errors import TrainingError
from models.training.costs.counters import peak_memory_mb
from models.training.job import TrainingJob
from models.training.loop import make_step
from models.training.session import open_session

# Examples in a rank's first attempt, and timed steps in each attempt.
FIRST, _TIMED = 64, 3
# A doubling must raise throughput by this factor; on a CPU it soon does not.
WORTH = 1.1
# Largest share of the free memory: the next attempt takes twice as much and must leave half to other processes.
_MOST_MEMORY = 0.25
_MOST_GPU_MEMORY = 0.9
# With fewer steps an epoch, the net learns little from an epoch.
_LEAST_STEPS = 16
_MESSAGES = ("can't allocate memory", "DefaultCPUAllocator", "out of memory")

Try = Callable[[int], float | None]


def find_batch(job: TrainingJob, world: World) -> dict[str, int]:
    """Find the batch for `train.batch: auto`: `batch` over all ranks, `micro_batch` of one rank and pass, `tries`.

    One rank alone runs steps of the real net on the real data and discards the results.

    Raises:
        TrainingError: Not even two examples fit.
    """
    tried: list[int] = []
    parts = world.size * job.train.accumulate
    examples = len(open_session(_trial(job, 2), World(device=world.device)).train)
    max_batch = max(2, examples // (_LEAST_STEPS * parts))

    def attempt(size: int) -> float | None:
        tried.append(size)
        return _speed(_trial(job, size), world.device)

    micro = largest(min(FIRST, max_batch), max_batch, attempt)
    return {"batch": micro * parts, "micro_batch": micro, "tries": len(tried)}


def largest(first: int, limit: int, attempt: Try) -> int:
    """Return the largest size up to which each doubling fits into memory and raises the speed.

    Args:
        first: The first size to try.
        limit: The upper limit of the size.
        attempt: Returns examples per second, or None if the size does not fit.

    Raises:
        TrainingError: Not even two examples fit.
    """
    size, speed = first, attempt(first)
    while speed is None:
        if size <= 2:
            raise TrainingError("train.batch: auto: not even two examples fit into memory: take a smaller net")
        size = max(2, size // 2)
        speed = attempt(size)
        if speed is not None:
            return size
    while size * 2 <= limit:
        faster = attempt(size * 2)
        if faster is None or faster < speed * WORTH:
            break
        size, speed = size * 2, faster
    return size


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, on a CPU or a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _MESSAGES)


def _trial(job: TrainingJob, size: int) -> TrainingJob:
    """Return a job that writes nothing and takes `size` examples a step."""
    train = job.train.model_copy(
        update={"batch": size, "accumulate": 1, "ranks": 1, "start": None, "pretrain": None, "pseudo_labels": None}
    )
    if train.compile == "auto":
        train = train.model_copy(update={"compile": False})
    update = {"train": train, "checkpoints": False, "folder": Path("/nonexistent"), "stage": "teacher", "start": None}
    return job.model_copy(update=update)


def _speed(job: TrainingJob, device: torch.device) -> float | None:
    """Return examples per second of a training step; None if the size does not fit, or twice the size would not."""
    try:
        return _timed(job, device)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    finally:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return None


def _timed(job: TrainingJob, device: torch.device) -> float | None:
    free, before = psutil.virtual_memory().available, peak_memory_mb(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    session = open_session(job, World(device=device))
    session.plan.learn(True)
    step, order = make_step(session), session.train.order(0, session.order)
    step(order, 0, 0)
    _wait(device)
    began = time.perf_counter()
    for index in range(_TIMED):
        step(order, 0, index % session.order.num_steps)
    _wait(device)
    seconds = time.perf_counter() - began
    if device.type == "cuda":
        if (
            torch.cuda.max_memory_reserved(device)
            > _MOST_GPU_MEMORY * torch.cuda.get_device_properties(device).total_memory
        ):
            return None
    elif (peak_memory_mb(device) - before) * 1e6 > _MOST_MEMORY * free:
        return None
    return _TIMED * job.train.batch / max(seconds, 1e-9)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
