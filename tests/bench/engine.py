"""The engine by itself: checkpoints, going on after a kill, two ranks against one, and precision on a GPU."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from models.distributed.world import World
from models.training.job import EpochReport, TrainingJob, TrainingResult
from models.training.loop import train
from models.training.session import TrainingSession, open_session
from tasks.ranks.rank_pool import RankPool
from tests.bench.training import sequence_task, table_task

ROWS = 245_760
_WAYS = (("fp32", "fp32", False), ("bf16", "bf16", False), ("bf16, compiled", "bf16", True))
LARGE = {"width": 1024, "layers": 12, "heads": 16}


@dataclass(frozen=True)
class Speed:
    """Of one way to train the transformer on a GPU; `mfu` is None for a GPU whose peak is not known."""

    samples_per_s: float
    mfu: float | None


def checkpoint_share() -> float:
    """Share of the time that goes into a checkpoint after every epoch: an MLP on 245,760 rows, 2 epochs."""
    with tempfile.TemporaryDirectory() as place:
        job = table_task(Path(place) / "table", ROWS).job
        job = job.model_copy(update={"checkpoints": True, "checkpoint_share": 1.0})
        taken = 0.0
        original = TrainingSession.checkpoint

        def timed(session: TrainingSession) -> None:
            nonlocal taken
            start = time.perf_counter()
            original(session)
            taken += time.perf_counter() - start

        TrainingSession.checkpoint = timed  # type: ignore[method-assign]
        try:
            session = open_session(job, World())
            start = time.perf_counter()
            train(session, lambda _: True)
            session.saver.settle()
            return taken / (time.perf_counter() - start)
        finally:
            TrainingSession.checkpoint = original  # type: ignore[method-assign]


def resume_s(ranks: int) -> float:
    """Seconds from the kill of a rank to the end of the next epoch, which has four small steps; rank included."""
    with tempfile.TemporaryDirectory() as place, RankPool() as pool:
        job = _with(table_task(Path(place) / "table", 4096).job, ranks=ranks, epochs=6)
        job = job.model_copy(update={"checkpoints": True, "checkpoint_share": 1.0})
        times: list[float] = []

        def on_epoch(epoch: EpochReport) -> bool:
            if epoch.epoch == 3:
                _kill_a_rank(pool)
                times.append(time.perf_counter())
            elif times and len(times) == 1:
                times.append(time.perf_counter())
            return True

        pool.run(job, on_epoch)
        return times[1] - times[0]


def ranks_speedup() -> tuple[float, float]:
    """Samples a second of the transformer on one rank and on two, one thread each."""
    found = []
    for ranks in (1, 2):
        with tempfile.TemporaryDirectory() as place, RankPool(threads=1) as pool:
            result = pool.run(_with(sequence_task(Path(place) / "sequence", 1024, epochs=2).job, ranks=ranks))
            found.append(_best(result))
    return found[0], found[1]


def on_a_gpu() -> dict[str, Speed]:
    """The transformer of 150 million parameters in fp32 and bf16, and compiled; nothing without a GPU."""
    if not torch.cuda.is_available():
        return {}
    found = {}
    for name, precision, compiled in _WAYS:
        with tempfile.TemporaryDirectory() as place, RankPool() as pool:
            job = sequence_task(Path(place) / "sequence", 65_536, epochs=3, precision=precision, **LARGE).job
            result = pool.run(_with(job, batch=512, compile=compiled))
            last = result.epochs[-1]
            found[name] = Speed(last["samples_per_s"], last.get("mfu"))
    return found


def _with(job: TrainingJob, **train_block: object) -> TrainingJob:
    return job.model_copy(update={"train": job.train.model_copy(update=train_block)})


def _best(result: TrainingResult) -> float:
    return max(epoch["samples_per_s"] for epoch in result.epochs)


def _kill_a_rank(pool: RankPool) -> None:
    fork_server = pool._fork_server
    assert fork_server is not None
    leaves = [one for one in psutil.Process(fork_server.pid).children(recursive=True) if not one.children()]
    os.kill(leaves[-1].pid, signal.SIGKILL)
