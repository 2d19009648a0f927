"""The program of each rank process: a job from its first seed to its written result."""

from __future__ import annotations

import datetime
import gc
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from models.distributed.order import ORDER_VERSION
from models.distributed.precision import set_products
from models.distributed.watchdog import OnHang, Watchdog
from models.distributed.world import World
from models.errors import TrainingError
from models.files import storing
from models.nets.catalogue import row_of
from models.project_spec import own_reads
from models.project_spec.blocks import Train
from models.project_spec.own_reads import Reads
from models.project_spec.parallel_dims import check_gpus
from models.project_spec.references import resolve
from models.training.auto_batch import is_out_of_memory
from models.training.checkpoints.finished import identity, read_finished, write_result
from models.training.checkpoints.state import Tensors
from models.training.checkpoints.weights import save_weights
from models.training.choices import reasons, settle_choices
from models.training.compilation import of_compiler, speed_device
from models.training.costs.speeds import MeasuredSpeed, measured_speeds
from models.training.costs.summary import of_epochs
from models.training.job import WEIGHTS_FILE, EpochReport, TrainingJob, TrainingResult
from models.training.known_errors import explaining
from models.training.loop import NonFiniteError, Report, explain, train
from models.training.optimisation.losses import loss_name
from models.training.optimisation.optimisers import is_fused
from models.training.session import TrainingSession, open_session
from models.training.stages import make_ready, refit

# For the time until the first step, which may compile. Later the watchdog is faster and names the ranks behind.
_COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=10)


def run_job(
    job: TrainingJob, report: Report | None = None, world: World | None = None, restarts: int = 0
) -> TrainingResult:
    """Run `job` on this rank; for a finished job, return its stored result without training.

    A job that was killed at any moment and is run again with as many ranks and threads ends with the same bits.

    Args:
        job: The job; its folder is written by rank 0 alone.
        report: Called on rank 0 after every epoch; returns whether to continue. An epoch may be reported twice if the
            process was killed after the report.
        world: This rank's view of its peers; by default there are none.
        restarts: How often the rank pool was restarted.

    Raises:
        TrainingError: The loss is not finite, or the folder belongs to another job.
        UsageError, UserCodeError, DataError: The net, the metric or the data does not match the spec.
        StoreError: The disk is full or cannot be written; the last good checkpoint stays.
    """
    world, report = world or World(), report or (lambda _: True)
    finished = read_finished(job)
    if finished is not None:
        return finished
    path = job.folder / own_reads.file_name(f"rank-{world.rank}")
    with own_reads.saving(path) as reads:
        return _run_unfinished(job, _saving_reads(report, reads, path), world, restarts)


def _saving_reads(report: Report, reads: Reads, path: Path) -> Report:
    """Save what own code read by the end of each epoch: the rank may be killed in the next."""
    saved = 0

    def report_too(epoch: EpochReport) -> bool:
        nonlocal saved
        if len(reads) > saved:
            own_reads.save(reads, path)
            saved = len(reads)
        return report(epoch)

    return report_too


def _run_unfinished(job: TrainingJob, report: Report, world: World, restarts: int) -> TrainingResult:
    torch.set_num_threads(job.threads)
    if job.is_refitted:
        return refit(job, report, partial(run_job, restarts=restarts))
    row = row_of(job.model.net)
    if not row.by_descent:
        fitted: TrainingResult = resolve(row.fit, job.project)(job, report, restarts)
        return fitted
    with storing(job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
        job = settle_choices(job, world)
    _settle(job.train, world)
    ready, before = make_ready(job, world, report, run_job)
    try:
        with explaining(f"rank {world.rank}"):
            session, pruned, best = _trained_or_plain(ready, world, report)
        result = _finish(session, best, pruned, restarts, job, before) if world.is_first else None
    except NonFiniteError as error:
        step = error.step
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise TrainingError(_out_of_memory(job, world, error)) from error
        raise
    else:
        world.gather(None)
        return result or TrainingResult(best_epoch=0, value=float("nan"), epochs=[])
    # The memory of the session and its gradients is free only here.
    raise explain(ready, world, step)


def _trained_or_plain(job: TrainingJob, world: World, report: Report) -> tuple[TrainingSession, bool, Tensors]:
    """Train; if the compiler fails that the job itself has chosen, go on from the last checkpoint without it."""
    session = open_session(job, world)
    try:
        return session, *_trained(session, report)
    except Exception as error:
        if not (session.compilation.is_auto and of_compiler(error)):
            raise
        session.compilation.give_up(error)
        del session  # its memory, before another is opened
    session = open_session(job, world)
    return session, *_trained(session, report)


def _trained(session: TrainingSession, report: Report) -> tuple[bool, Tensors]:
    with session.saver:
        try:
            return train(session, report), session.saver.join_best(session.best)
        except NonFiniteError:
            session.saver.settle()  # so that its cause is sought from the newest checkpoint
            raise


def join_world(job: TrainingJob, on_hang: OnHang) -> World:
    """Join the rank pool as the rank that torch's elastic agent has set in the environment.

    Args:
        job: The training job.
        on_hang: Called from a thread when the ranks make no progress, with the ranks behind and this rank's stack.
    """
    torch.set_num_threads(job.threads)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    os.environ.update(nccl_settings(job.train))  # read when NCCL starts
    store, rank, size = next(rendezvous("env://", timeout=_COLLECTIVE_TIMEOUT))
    if os.environ["GROUP_WORLD_SIZE"] == "1":  # one agent keeps its store through restarts: ignore keys of dead ranks
        store = PrefixStore(f"restart {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_COLLECTIVE_TIMEOUT)
    watchdog = Watchdog(store, rank, size, job.silence_s, on_hang)
    return World(rank, size, device_of(job, local_rank()), watchdog=watchdog)


def nccl_settings(train: Train) -> dict[str, str]:
    """Return NCCL's variables of this rank: those of its environment, and above them `train.nccl`."""
    inherited = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    return {**inherited, **{name: str(value) for name, value in train.nccl.items()}}


def device_of(job: TrainingJob, number: int = 0) -> torch.device:
    """Return this rank's own GPU among those of the job's slot, or the CPU if the machine has no GPU.

    Raises:
        UsageError: The machine has fewer GPUs than the job has ranks on it.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        check_gpus(job.train.ranks, count, "this machine")
    return torch.device("cuda", (job.slot * job.train.ranks + number) % count) if count else torch.device("cpu")


def local_rank() -> int:
    """Return this rank's number on its node, as torch's elastic agent has set it."""
    return int(torch.distributed.get_node_local_rank())


def is_of_the_network(error: Exception) -> bool:
    """Return whether a lost peer caused the error: torch's agents then start the ranks again."""
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error) or "NCCL" in str(error)


def leave_world(world: World) -> None:
    """Destroy the process group in order.

    DDP objects must be collected first: when one outlived its group, 16 of 36 exits hung, measured.
    """
    if world.watchdog is not None:
        world.watchdog.end()
        world.gather(None)  # until no rank uses the store, which ends with rank 0
    gc.collect()
    torch.distributed.destroy_process_group()


def environment(session: TrainingSession) -> dict[str, Any]:
    """Return all facts besides the result that decide the bits of the weights."""
    job, device = session.job, session.world.device
    cuda = device.type == "cuda"
    form = "fused" if is_fused(session.net, job.train.optimiser) else "plain"
    return {
        "job": identity(job),
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "torch_build": torch.__config__.show(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": device_name(device),
        "cuda": torch.version.cuda if cuda else None,
        "cudnn": torch.backends.cudnn.version() if cuda else None,  # type: ignore[no-untyped-call]
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None,  # type: ignore[no-untyped-call]
        "nccl_settings": nccl_settings(job.train),
        "world_size": session.world.size,
        "worlds": session.progress.worlds,
        "layout": asdict(session.world.layout),
        "threads": torch.get_num_threads(),
        "backend": torch.distributed.get_backend() if session.world.size > 1 else None,
        "batch": job.train.batch,
        "micro_batch": job.train.batch // (job.train.accumulate * session.world.data_size),
        "steps_per_epoch": session.order.num_steps,
        "train_examples": len(session.train),
        "validation_examples": len(session.validation),
        "order_version": ORDER_VERSION,
        "loss": job.train.loss or loss_name(session.preparation.task, session.preparation.target, session.metric.name),
        **session.plan.describe(),
        "compiled": session.compilation.describe(),
        "chosen": reasons(job.folder),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "optimiser": f"{type(session.optimiser).__name__}, {form}",
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "seeds": {"weights": ["weights", job.train.seed], "rank": ["rank", job.train.seed, "<data rank>"]},
    }


def _speeds(session: TrainingSession) -> list[MeasuredSpeed]:
    job, compilation = session.job, session.compilation
    template = MeasuredSpeed(
        device=speed_device(job.processor, session.world.device),
        precision=job.train.precision,
        net=job.model.net,
        mfu=1.0,
        compile_s=compilation.cost_s,
        ranks=session.world.size,
    )
    return measured_speeds(session.progress.history, compilation.first_step / session.order.num_steps, template)


def device_name(device: torch.device) -> str:
    """Return `cpu`, or the GPU's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _out_of_memory(job: TrainingJob, world: World, error: BaseException) -> str:
    train = job.train
    return (
        f"rank {world.rank} ran out of memory ({str(error).splitlines()[0] if str(error) else type(error).__name__}): "
        f"lower train.batch (now {train.batch}), raise train.accumulate (now {train.accumulate}), or train a smaller "
        f"net; finished work is kept: run again to continue"
    )


def _settle(train: Train, world: World) -> None:
    set_products(train.precision, world.device)
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _finish(
    session: TrainingSession, best: Tensors, pruned: bool, restarts: int, request: TrainingJob, before: dict[str, Any]
) -> TrainingResult:
    """Write and return the result of `request`; `session.job` is the same job after its earlier stages."""
    job, progress = session.job, session.progress
    return write_result(
        job,
        progress,
        weights=WEIGHTS_FILE,
        weights_sha256=save_weights(job.folder / WEIGHTS_FILE, best),
        num_parameters=session.plan.num_parameters,
        world_size=session.world.size,
        restarts=restarts,
        pruned=pruned,
        costs=of_epochs(progress.history, device_name(session.world.device), session.meter.peak),
        before=before,
        speeds=_speeds(session),
        environment={**environment(session), "job": identity(request)},
    )
