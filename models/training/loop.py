"""The training loop of one rank; one rank and many ranks run the same code."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from models.distributed.dtensor import local, total_norm
from models.distributed.world import World
from models.errors import TrainingError
from models.training.batches.micro_batch import Batch
from models.training.batches.stream import StreamOrder
from models.training.checkpoints.state import Progress
from models.training.evaluate import evaluate
from models.training.job import EpochReport, TrainingJob
from models.training.model_choice import ValidationScore, record
from models.training.optimisation.losses import Loss
from models.training.optimisation.optimisers import clip
from models.training.optimisation.schedules import is_plateau, learning_rate
from models.training.session import TrainingSession, open_session

if TYPE_CHECKING:
    from models.distributed.pipeline import Criterion

Report = Callable[[EpochReport], bool]
Step = Callable[[torch.Tensor | StreamOrder, int, int], torch.Tensor]

# Steps between two checks of the losses: few checks, so that they cost nothing, but enough to stop soon.
WINDOW = 50


class NonFiniteError(Exception):
    """The loss became NaN or infinite at optimiser step `step`; every rank raises it at the same step."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


def train(session: TrainingSession, report: Report) -> bool:
    """Train until the last epoch, early stopping or a stop by `report`; return whether `report` stopped it.

    Raises:
        NonFiniteError: The loss is NaN or infinite.
        StoreError: A checkpoint could not be written.
    """
    progress, epochs = session.progress, session.job.train.epochs
    stopped = pruned = False
    step = make_step(session)
    while progress.epoch < epochs and not stopped:
        start = time.perf_counter()
        session.meter.open_epoch(progress.spent)
        _run_epoch(session, step)
        session.meter.trained()
        progress_values = [0.0] * 5
        with session.averaged():
            scores = evaluate(session)
            session.world.beat()
            costs = session.meter.close_epoch(session.order.num_examples)
            progress.spent = {}
            if session.world.is_first:
                improved = _close_epoch(session, scores, costs)
                pruned = not report(EpochReport(epoch=progress.epoch, epochs=epochs, values=progress.history[-1]))
                progress.seconds += time.perf_counter() - start
                stopped = pruned or is_over(progress, epochs, session.job.train.patience)
                due = not stopped and session.is_checkpoint_due()
                progress_values = [*map(float, (improved, stopped, due, progress.drops, progress.last_drop))]
            else:
                progress.epoch += 1
                progress.loss_sum, progress.loss_count = 0.0, 0
            progress_values = session.world.from_first(progress_values)
            improved, stopped, due = map(bool, progress_values[:3])
            progress.drops, progress.last_drop = map(int, progress_values[3:])
            if improved:
                session.keep_best()
        if due:
            session.checkpoint()
    return pruned


def make_step(session: TrainingSession) -> Step:
    """Return a function (order, epoch, step in epoch) that does one optimiser step and returns this rank's loss sum."""
    world, order, train = session.world, session.order, session.job.train
    update = make_update(session)
    num_steps = order.num_steps * train.epochs
    scales: dict[int, torch.Tensor] = {}

    def step(positions: torch.Tensor | StreamOrder, epoch: int, index: int) -> torch.Tensor:
        step_number = epoch * order.num_steps + index
        with session.compilation.before(step_number):
            return taken(positions, epoch, index, step_number)

    def taken(positions: torch.Tensor | StreamOrder, epoch: int, index: int, step_number: int) -> torch.Tensor:
        rate = learning_rate(train, step_number, num_steps, session.progress.drops)
        for group in session.optimiser.param_groups:
            group["lr"] = rate * group["share"]
        start, stop = order.bounds(index)
        count = stop - start
        if count not in scales:
            # Data parallelism divides by its ranks. The loss is a sum; the step needs the mean over the whole batch.
            scales[count] = torch.tensor(world.data_size / count, device=world.device)
        scale = scales[count] * session.scaler.scale if session.scaler else scales[count]
        total = None
        for micro in range(train.accumulate):
            low, high = order.slice(index, micro, world.data_rank)
            with session.meter.waiting:
                rows = positions[low:high]
                batch = session.batches.at(rows, epoch, index * train.accumulate + micro, world.data_rank)
            criterion = _criterion(batch, session.loss)
            value = session.plan.backward(batch.inputs, criterion, scale, micro < train.accumulate - 1)
            total = value if total is None else total + value
        update()
        if session.ema:
            session.ema.update(step_number)
        assert total is not None
        return total if world.is_output_rank else torch.zeros_like(total)

    return step


def make_update(session: TrainingSession) -> Callable[[], None]:
    """Return a function that updates the weights with the current gradients and then releases the gradients."""
    train, plan, scaler = session.job.train, session.plan, session.scaler
    parameters = [parameter for parameter in plan.net.parameters() if parameter.requires_grad]

    def update() -> None:
        present = [parameter.grad for parameter in parameters if parameter.grad is not None]
        good = True
        if train.clip_norm is not None or scaler is not None:
            norm = total_norm(present, plan.mesh)
            gradients = [local(gradient) for gradient in present]
            if scaler is not None:
                norm, good = norm / scaler.scale, scaler.unscale(gradients, norm)
            if train.clip_norm is not None:
                clip(gradients, norm, train.clip_norm)
        if good:
            session.optimiser.step()
        for parameter in parameters:
            parameter.grad = None

    return update


def _criterion(batch: Batch, loss: Loss) -> Criterion:
    """Return a function that sums the loss over a slice of the batch."""
    target, weight = batch.target, batch.weight

    def first(output: torch.Tensor, part: slice) -> torch.Tensor:
        return loss(output, target[part], None if weight is None else weight[part])

    if batch.mixed is None:
        return first
    share, partners = batch.mixed
    second, its_weight = target[partners], None if weight is None else weight[partners]

    def mixed(output: torch.Tensor, part: slice) -> torch.Tensor:
        partner = loss(output, second[part], None if its_weight is None else its_weight[part])
        return share * first(output, part) + (1 - share) * partner

    return mixed


def explain(job: TrainingJob, world: World, step: int) -> TrainingError:
    """Return the error for a loss that is not finite at optimiser step `step`; it names the first bad layer.

    The steps since the last good checkpoint are repeated. Every rank must call it.

    Cost: the steps since the last checkpoint, or since the start.
    """
    session = open_session(job, world)
    good = session.progress.step
    cause = next((name for name in world.gather(_first_bad(session, step)) if name), "none found when taken again")
    fallback = f"the checkpoint of step {good} is kept in {job.checkpoint_folder}" if good else "no step was kept"
    epoch = step // session.order.num_steps + 1
    return TrainingError(
        f"train_loss is not finite at step {step} (epoch {epoch}); first bad: {cause}; {fallback}: "
        f"lower train.lr (now {job.train.lr:g}), set train.clip_norm (now {job.train.clip_norm}), or look at the data"
    )


def _first_bad(session: TrainingSession, step: int) -> str | None:
    take, plan = make_step(session), session.order
    session.plan.learn(True)
    order = functools.lru_cache(1)(lambda epoch: session.train.order(epoch, plan))
    for step_number in range(session.progress.step, step):
        epoch, index = divmod(step_number, plan.num_steps)
        take(order(epoch), epoch, index)
    broken = [name for name, p in session.net.named_parameters() if not p.isfinite().all()]
    epoch, index = divmod(step, plan.num_steps)
    seen: list[str] = []
    handles = [module.register_forward_hook(_watch(name, seen)) for name, module in session.net.named_modules() if name]
    take(order(epoch), epoch, index)
    for handle in handles:
        handle.remove()
    if broken:
        return f"weights {broken[0]}, by the update of step {step - 1}"
    return seen[0] if seen else None


def _watch(name: str, seen: list[str]):  # type: ignore[no-untyped-def]  # noqa: ANN202  torch's hook type is private
    def hook(module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        del inputs
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, torch.Tensor) and not first.isfinite().all():
            seen.append(f"output of layer {name} ({type(module).__name__})")

    return hook


def is_over(progress: Progress, epochs: int, patience: int | None) -> bool:
    """Return whether the last epoch is done, or the model has not improved for `patience` epochs."""
    return progress.epoch == epochs or (patience is not None and progress.epoch - progress.improved_epoch >= patience)


def _run_epoch(session: TrainingSession, step: Step) -> None:
    progress, plan = session.progress, session.order
    session.plan.learn(True)
    order = session.train.order(progress.epoch, plan)
    first = progress.step - progress.epoch * plan.num_steps
    for start in range(first, plan.num_steps, WINDOW):
        stop = min(start + WINDOW, plan.num_steps)
        losses, began = [], time.perf_counter()
        for index in range(start, stop):
            losses.append(step(order, progress.epoch, index))
            session.world.beat(progress.step + len(losses))
        due = float(session.is_checkpoint_due() and stop < plan.num_steps)
        summed, launched = torch.stack(losses).double(), time.perf_counter()
        totals = session.world.total(torch.cat([summed, summed.new_tensor([due * session.world.is_first])])).tolist()
        bad = [index for index, value in enumerate(totals[:-1]) if not math.isfinite(value)]
        if bad:
            raise NonFiniteError(progress.step + bad[0])
        progress.step += stop - start
        if session.compilation.is_open:
            ended = time.perf_counter()
            session.compilation.observe(progress.step, stop - start, ended - began, ended - launched)
        progress.loss_sum += sum(totals[:-1])
        progress.loss_count += plan.bounds(stop - 1)[1] - plan.bounds(start)[0]
        if totals[-1]:
            session.checkpoint()


def _close_epoch(session: TrainingSession, scores: dict[str, float], costs: dict[str, float]) -> bool:
    """Add the epoch to the history, on rank 0; return whether its weights are the best so far."""
    progress, job = session.progress, session.job
    progress.epoch += 1
    values = {
        "train_loss": progress.loss_sum / max(1, progress.loss_count),
        **scores,
        "lr": session.optimiser.param_groups[0]["lr"] / session.optimiser.param_groups[0]["share"],
        **costs,
    }
    progress.loss_sum, progress.loss_count = 0.0, 0
    progress.history.append(values)
    improved = record(progress, ValidationScore.of(scores, session.metric.name), job.direction, progress.epoch)
    if is_plateau(progress, job.train):
        progress.drops, progress.last_drop = progress.drops + 1, progress.epoch
    return improved
