"""Training jobs of a loop: the tensors that all of them share, and the job for a set of blocks."""

from __future__ import annotations

import functools
import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from models.cores import usable_gpus, usable_memory
from models.data.preparation import Preparation
from models.files import replacing_folder
from models.metrics.metrics import metric_of
from models.nets.catalogue import net_name, row_of
from models.pipeline.keys import code_parts, key_of
from models.pipeline.steps import ENCODING_CODE
from models.project_spec.blocks import Model, Train
from models.training.costs.spec_memory import batch_may_exceed
from models.training.families import SearchSpace
from models.training.job import InitialWeights, TrainingJob, TrainingResult, begun
from models.training.search_space import NET, with_params
from tasks.host.workspace import Workspace
from tasks.loop.inputs import Input
from tasks.loop.loop import Loop
from tasks.ranks.launcher import JobOwner, Place
from tasks.ranks.rank_pool import OnEpoch, RankPool, default_threads
from tasks.state.keyed_cache import JSON, KeyedCache
from tasks.state.machine_speeds import read_speeds
from tasks.state.workspace_id import workspace_id

_measuring = threading.Lock()
_encoding = threading.Lock()  # trials that begin at once all want the tensors

FOLD_BY: dict[str, Literal["blocks", "groups"]] = {
    **dict.fromkeys(("time", "position"), "blocks"),
    **dict.fromkeys(("group", "hash", "random", "stratified"), "groups"),
}
"""How the rows of each kind of split are folded; rows that share no key are apart, so they are folded one by one."""


def tensors(state: Path, prepared: Input) -> dict[str, Path]:
    """Return the prepared data as memory-mapped tensors, made once per dataset version and encoder code."""
    from models.data.encode import write_tensors

    with _encoding:
        folder = state / "work" / "tensors" / f"{prepared.digest[:16]}-{_encoder()}"
        if not folder.exists():
            with replacing_folder(folder) as temporary:
                write_tensors(prepared.folder, temporary)
    os.utime(folder)  # so that it does not count as unused
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


@functools.cache  # imported code does not change
def _encoder() -> str:
    return key_of(code_parts(ENCODING_CODE))[:8]


def job(
    loop: Loop,
    prepared: Input,
    folder: Path,
    model: Model,
    train: Train,
    *,
    workers: int = 1,
    start: InitialWeights | None = None,
    place: Place | None = None,
) -> TrainingJob:
    """Return a training job on `prepared` that writes into `folder`, for `place` or for this machine (None).

    It has the initial weights `start` if its net can begin with them. On this machine `workers` jobs share cores and
    GPUs, each by its `slot`.
    """
    preparation = Preparation.load(prepared.folder)
    model = model.model_copy(update={"net": net_name(model.net, preparation.kind)})
    metric = metric_of(loop.spec.goal, preparation, loop.project.folder)
    threads = train.threads or (
        default_threads(train.ranks, workers) if place is None else max(1, (place.cpus or 0) // train.ranks)
    )
    training_job = TrainingJob(
        folder=folder,
        prepared=prepared.folder,
        tensors=tensors(loop.state, prepared),
        project=loop.project.folder,
        model=model,
        train=train,
        metric=loop.spec.goal.reference or metric.name,
        direction=metric.direction,
        threads=threads,
        peak_flops_per_s=None
        if not row_of(model.net).by_descent or place is not None
        else cpu_peak(loop.workspace, loop.rank_pool, threads, train.precision),
        processor="cpu" if place is not None else processor_name(),
        speeds=read_speeds(loop.workspace),
        fold_by=FOLD_BY.get(loop.spec.data.split.by, "random"),
    )
    return begun(training_job, start)


def job_owner(loop: Loop) -> JobOwner:
    """Return whose the jobs are that a loop submits to a place."""
    return JobOwner(workspace_id(loop.workspace.state), loop.confirm)


def check_batch(rank_pool: RankPool, job: TrainingJob) -> None:
    """Refuse a batch that cannot fit into this machine's memory before a rank is started; nothing is done for GPUs.

    The system would end the rank when the memory is full, and the rank would begin again. A GPU says at once that its
    memory is full.

    Raises:
        TrainingError: Says how much is needed, and which batch would fit.
    """
    memory = usable_memory()
    if usable_gpus(os.environ.get("CUDA_VISIBLE_DEVICES")) == 0 and batch_may_exceed(job, memory / job.train.ranks):
        rank_pool.call("models.planner.batch_check:refuse_batch", job=job.as_json(), memory=memory)


def run_here(rank_pool: RankPool, job: TrainingJob, on_epoch: OnEpoch | None = None) -> TrainingResult:
    """Train a job on this machine, once its batch has been checked; see `RankPool.run`.

    Raises:
        TrainingError: The batch cannot fit, or the training failed.
    """
    check_batch(rank_pool, job)
    return rank_pool.run(job, on_epoch)


def within_budget(
    rank_pool: RankPool, space: SearchSpace, budget_s: float, first_job: Callable[[str], TrainingJob]
) -> SearchSpace:
    """Return the space with no more default epochs of a net than fit into the search's budget, or its own ceiling.

    Args:
        rank_pool: Counts the operations of the nets.
        space: As it is without a budget.
        budget_s: In seconds of a reference core.
        first_job: Gives the first job of a net.
    """
    reference = "models.planner.epoch_work:epoch_s"
    nets = [net for net, family in space.families.items() if family.epochs and (budget_s or family.ceiling_s)]
    jobs = {net: first_job(net).as_json() for net in nets}
    return space.within(budget_s, {net: float(rank_pool.call(reference, job=plain)) for net, plain in jobs.items()})


def within_ceiling(loop: Loop, prepared: Input, folder: Path, space: SearchSpace) -> SearchSpace:
    """Return the space with no more default epochs of a net than its own ceiling allows, for a loop without trials."""

    def first_job(net: str) -> TrainingJob:
        model, train = with_params(loop.spec.model, loop.spec.train, space.settings({NET: net}))
        return job(loop, prepared, folder, model, train.on_one_machine())

    return within_budget(loop.rank_pool, space, 0.0, first_job)


def with_flips(loop: Loop, prepared: Input, space: SearchSpace) -> SearchSpace:
    """Return the space with pictures flipped where their mirror images keep the label, if it augments any by default.

    Raises:
        LooplineError: The tensors cannot be read.
    """
    if not space.augments:
        return space
    paths = {split: str(path) for split, path in tensors(loop.state, prepared).items()}
    keeps = loop.rank_pool.call("models.training.batches.flips:may_flip", tensors=paths)
    return space.flipped() if keeps else space


def validation_value(rank_pool: RankPool, job: TrainingJob) -> float:
    """Return the goal's metric of a finished job on validation, of the first fit of a refitted model."""
    reference = "models.export.validation_scores:validation_value"
    return float(rank_pool.call(reference, job=job.as_json()))


def cpu_peak(workspace: Workspace, rank_pool: RankPool, threads: int, precision: str) -> float | None:
    """Return the peak FLOP/s of a rank on this machine's CPU, measured once per workspace; None for GPUs."""
    key = key_of({"processor": processor_name(), "threads": threads, "precision": precision})[:16]
    measure = functools.partial(
        rank_pool.call, "models.training.costs.devices:measured_peak", threads=threads, precision=precision
    )
    with _measuring:
        peak: float | None = KeyedCache(workspace.cache / "peaks").get(key, JSON, measure)
        return peak


def processor_name() -> str:
    """Return a name for this machine's processor: other machines may share the workspace."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{platform.machine()} {model or platform.processor()} x {os.cpu_count()}"
