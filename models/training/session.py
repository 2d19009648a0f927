"""The training session of one rank: built from the job alone, then restored from the last checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn

from models.data.preparation import Preparation
from models.distributed.dtensor import spread_optimiser
from models.distributed.order import SampleOrder, seed_of
from models.distributed.parallel import ParallelizedNet, Warmup, builds_in_shards, make_plan
from models.distributed.precision import LossScaler
from models.distributed.world import World
from models.errors import TrainingError
from models.metrics.metrics import Metric, metric_of
from models.nets.build import draft_net
from models.nets.deferred import NetDraft
from models.nets.sizes import Sizes
from models.project_spec.blocks import Train
from models.training.batches.example_set import ExampleSet
from models.training.batches.examples import open_examples
from models.training.batches.micro_batch import BatchMaker
from models.training.batches.own_augment import OwnAugmentation
from models.training.checkpoints.checkpoint import newest, read_meta
from models.training.checkpoints.finished import difference, identity
from models.training.checkpoints.saver import CheckpointSaver, own_part
from models.training.checkpoints.state import (
    Checkpointable,
    Progress,
    Tensors,
    put_extra,
    put_optimiser,
    put_random,
    seed_everything,
    stage,
    take_extra,
    take_random,
    take_tensors,
    weights_of,
)
from models.training.choices import with_choices
from models.training.compilation import Compilation
from models.training.costs.meter import Meter, open_meter
from models.training.job import TrainingJob
from models.training.memory_check import refuse_what_cannot_fit
from models.training.optimisation.ema import Ema
from models.training.optimisation.fine_tuning import freeze, load_origin
from models.training.optimisation.losses import Loss, make_loss
from models.training.optimisation.optimisers import make_optimiser
from models.training.optimisation.pretrain import LOSS, MaskingScheme, reconstructor

if TYPE_CHECKING:
    from models.training.checkpoints.shards import StoredCheckpoint


@dataclass(frozen=True)
class Objective:
    """The objective of one stage; `hiding` is set if the stage learns the inputs rather than the target."""

    net: nn.Module
    loss: Loss
    metric: Metric
    hiding: MaskingScheme | None = None


@dataclass
class TrainingSession:
    """The live objects of one rank.

    Attributes:
        plan: The net and its distribution over the ranks.
        best: The best weights so far, on the CPU: the part that this rank writes.
        extra: Further state in each checkpoint, by name. Fill it before the session is restored from a checkpoint.
    """

    job: TrainingJob
    world: World
    preparation: Preparation
    plan: ParallelizedNet
    optimiser: torch.optim.Optimizer
    loss: Loss
    metric: Metric
    train: ExampleSet
    validation: ExampleSet
    batches: BatchMaker
    order: SampleOrder
    meter: Meter
    saver: CheckpointSaver
    compilation: Compilation
    scaler: LossScaler | None = None
    ema: Ema | None = None
    progress: Progress = field(default_factory=Progress)
    best: Tensors = field(default_factory=dict)
    extra: dict[str, Checkpointable] = field(default_factory=dict)
    _best_is_written: bool = False
    _own: frozenset[str] | None = None
    _since: float = field(default_factory=time.perf_counter)

    @property
    def net(self) -> nn.Module:
        """The net with the parameters of this rank, which have their names in the whole net."""
        return self.plan.net

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the net the moving average of its weights inside `with`, if there is an EMA."""
        if self.ema is None:
            yield
            return
        with self.ema.shown():
            self.plan.settle()
            yield
            self.plan.settle()

    def is_checkpoint_due(self) -> bool:
        """Return whether a checkpoint now stays within its share of the time. Rank 0 decides."""
        if self.job.checkpoint_share < 1 and self.saver.is_busy:
            return False
        return self.job.allows_checkpoint(time.perf_counter() - self._since, self.saver.cost_s)

    def keep_best(self) -> None:
        """Copy the current weights as the best so far. Every rank must call it."""
        weights = weights_of(self.net)
        if self._own is None:
            self._own = frozenset(own_part(weights, self.world))
        self.best = stage({name: tensor for name, tensor in weights.items() if name in self._own})
        self._best_is_written = False

    def checkpoint(self) -> None:
        """Begin to write a checkpoint of all state that a resume needs. Every rank must call it.

        Raises:
            StoreError: The disk is full or cannot be written; earlier checkpoints stay.
        """
        amid_epoch = self.progress.step > self.progress.epoch * self.order.num_steps
        self.progress.spent = self.meter.so_far() if amid_epoch else {}
        self._since = time.perf_counter()
        tensors, scalars = take_tensors(self.net, self.optimiser)
        extra_tensors, numbers = take_extra(self.extra)
        random = {f"random/{self.world.rank}/{name}": value for name, value in take_random(self.world.device).items()}
        meta = {
            "progress": asdict(self.progress),
            "job": identity(self.job),
            "world_size": self.world.size,
            "scalars": {name: value for part in self.world.gather(scalars | numbers) for name, value in part.items()},
        }
        best = None if self._best_is_written else self.best
        self.saver.save(self.progress.step, meta, tensors | extra_tensors | random, best)
        self._best_is_written = True


def open_session(job: TrainingJob, world: World) -> TrainingSession:
    """Build all objects from the job's seed, then restore the newest whole checkpoint, if there is one.

    Raises:
        TrainingError: The checkpoint belongs to another job.
        UsageError, UserCodeError, DataError: The net, the metric or the data does not match the spec.
    """
    job, world = with_choices(job, world), world.under(job.train)
    preparation = Preparation.load(job.prepared)
    train, validation = (part.to(world.device) for part in open_examples(job, preparation))
    order = _order(job.train, world, len(train))
    seed_everything("weights", job.train.seed)
    is_balanced = job.train.class_weights == "balanced"
    counted, weights = (train.targets(), train.weights()) if is_balanced else (train.target, None)
    drafted = _draft(job, preparation, world)
    purpose = make_purpose(drafted.net, job, preparation, counted, weights)
    net, loss = purpose.net if drafted.is_deferred else purpose.net.to(world.device), purpose.loss
    batches = BatchMaker(job, train, purpose.hiding, _own_augmentation(job.train, job.project, preparation))
    meter = open_meter(job, world, net, train)
    example = train.gather(torch.arange(2, device=world.device))
    plan = make_plan(net, job.train, world, example, _warmup(net, loss, batches, world.device))
    drafted.fill(world.device, partial(seed_of, "weights", job.train.seed), job.threads)
    optimiser = spread_optimiser(make_optimiser(plan.net, job.train), job.train, plan.mesh)
    _seed_rank(job.train, world)
    session = TrainingSession(
        job=job,
        world=world,
        preparation=preparation,
        plan=plan,
        optimiser=optimiser,
        loss=loss,
        metric=purpose.metric,
        train=train,
        validation=validation,
        batches=batches,
        order=order,
        meter=meter,
        saver=CheckpointSaver(job.checkpoint_folder, world, job.train.async_checkpoints, job.train.keep_checkpoints),
        compilation=Compilation(job, world, plan, order.num_steps * job.train.epochs),
        scaler=LossScaler() if job.train.precision == "fp16" else None,
        ema=Ema(plan.net, job.train.ema) if job.train.ema else None,
    )
    extra = {"scaler": session.scaler, "ema": session.ema}
    session.extra = {name: part for name, part in extra.items() if part is not None}
    _resume(session)
    if [world.size, job.threads] not in [world_record[1:] for world_record in session.progress.worlds[-1:]]:
        session.progress.worlds.append([session.progress.step, world.size, job.threads])
    return session


def _draft(job: TrainingJob, preparation: Preparation, world: World) -> NetDraft:
    """Return the net with its layers frozen: without memory if each rank is to fill only its shards, else whole.

    Raises:
        TrainingError: The plan cannot fit; nothing was allocated for a net of the catalogue.
    """
    drafted = draft_net(job.model, Sizes.of(preparation, job.model.net), job.project)
    is_pretraining = job.stage == "pretrain"
    if not is_pretraining:
        freeze(drafted.net, job.train)
    in_shards = drafted.is_deferred and job.start is None and not is_pretraining and builds_in_shards(world)
    if world.is_first:
        refuse_what_cannot_fit(drafted.net, job.train, world, in_shards)
    if in_shards:
        return drafted
    drafted.fill(world.device, partial(seed_of, "weights", job.train.seed), job.threads)
    return NetDraft(drafted.net)


def make_purpose(
    net: nn.Module,
    job: TrainingJob,
    preparation: Preparation,
    targets: torch.Tensor,
    weights: torch.Tensor | None = None,
) -> Objective:
    """Load the job's initial weights into the net, and give it the loss and the metric of the job's stage.

    Args:
        net: The net with its layers frozen; it has its values if the job has initial weights or is a pretraining.
        job: The job.
        preparation: The preparation of its data.
        targets: The training targets, from which balanced class weights are computed.
        weights: Of the training rows, which those count.

    Raises:
        UsageError, UserCodeError: The metric does not match the spec.
        StoreError, TrainingError: The initial weights cannot be read, or do not fit.
    """
    sizes = Sizes.of(preparation, job.model.net)
    if job.start is not None:
        takes_part = job.train.start is not None and job.train.start.partial
        load_origin(net, job.model.net, job.start, preparation, takes_part)
    if job.stage == "pretrain":
        assert job.train.pretrain is not None
        hiding = MaskingScheme(sizes, job.train.pretrain)
        metric = Metric(LOSS, "minimize", (), _unused)
        return Objective(reconstructor(net, sizes, job.model.net), hiding.loss, metric, hiding)
    metric = metric_of(job, preparation, job.project)
    loss = make_loss(preparation, job.train, metric.name, targets, job.project, weights)
    return Objective(net, loss, metric)


def _unused(*_: object) -> NoReturn:
    raise AssertionError("a pretraining is judged by its loss")


def _order(train: Train, world: World, count: int) -> SampleOrder:
    epoch = count // train.epochs_per_pass
    return SampleOrder(epoch, train.batch, world.data_size, train.accumulate, train.seed, pool=count)


def _seed_rank(train: Train, world: World) -> None:
    """Seed this rank: ranks with different examples draw different masks, ranks that share a layer the same masks."""
    stage = world.layout.place(world.rank)["pipeline"]
    seed_everything("rank", train.seed, world.data_rank, *(("stage", stage) if stage else ()))


def last_checkpoint(job: TrainingJob, world: World) -> tuple[Path, dict[str, Any]] | None:
    """Return the job's newest whole checkpoint with its state besides tensors; None if there is none.

    Every rank must call it.

    Raises:
        TrainingError: The checkpoint belongs to another job.
    """
    checkpoint = newest(job.checkpoint_folder, world) if job.checkpoints else None
    if checkpoint is None:
        return None
    meta = read_meta(checkpoint)
    differs = difference(meta["job"], identity(job))
    if differs:
        raise TrainingError(
            f"{checkpoint.parent}: holds checkpoints of another job ({differs}): remove the folder, or give this "
            "job another"
        )
    return checkpoint, meta


def _resume(session: TrainingSession) -> None:
    """Restore the newest whole checkpoint, which other ranks may have written."""
    job, world = session.job, session.world
    last = last_checkpoint(job, world)
    if last is None:
        return
    checkpoint, meta = last
    from models.training.checkpoints.shards import StoredCheckpoint

    stored, scalars = StoredCheckpoint(checkpoint), meta["scalars"]
    weights, _ = take_tensors(session.net, session.optimiser)
    _refuse_another_net(checkpoint, stored, weights, world)
    stored.load(weights)
    put_optimiser(stored, scalars, session.net, session.optimiser)
    put_extra(stored, scalars, session.extra)
    random = stored.read(f"random/{world.rank}/")
    if random:
        put_random({name.rpartition("/")[2]: value for name, value in random.items()}, world.device)
    session.progress = Progress(**meta["progress"])
    session.progress.resumed_from.append(session.progress.step)
    if session.progress.best_epoch:
        session.keep_best()
        stored.load({f"best/{name}": tensor for name, tensor in session.best.items()})
        session._best_is_written = True
    session.saver.last = checkpoint


def _refuse_another_net(path: Path, stored: StoredCheckpoint, weights: Tensors, world: World) -> None:
    names_of_ranks = set().union(*world.gather(set(weights)))
    lacks = sorted(name for name in weights if name not in stored.shapes)
    extra = sorted(name for name in stored.shapes if name.startswith("net/") and name not in names_of_ranks)
    differences_here = [
        f"{name.removeprefix('net/')}: got {stored.shapes[name]}, expected {tuple(tensor.shape)}"
        for name, tensor in weights.items()
        if name in stored.shapes and stored.shapes[name] != tuple(tensor.shape)
    ]
    differences = [f"lacks {name.removeprefix('net/')}" for name in lacks]
    differences += [f"holds {name.removeprefix('net/')}" for name in extra]
    difference = next((text for text in world.gather([*differences_here, *differences][:3]) if text), None)
    if difference:
        raise TrainingError(
            f"{path}: is a checkpoint of another net ({'; '.join(difference)}): remove the folder {path.parent}, "
            "or give this job another"
        )


def _own_augmentation(train: Train, project: Path, preparation: Preparation) -> OwnAugmentation | None:
    reference = train.augment.function
    return OwnAugmentation.of(reference, project, preparation) if reference else None


def _warmup(net: nn.Module, loss: Loss, batches: BatchMaker, device: torch.device) -> Warmup:
    some = batches.at(torch.arange(2, device=device), 0, 0, 0)

    def rehearse(module: nn.Module) -> None:
        net.train()
        loss(module(**some.inputs), some.target).backward()  # type: ignore[no-untyped-call]

    return rehearse
