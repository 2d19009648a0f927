"""Finds why a loss became NaN: repeats the steps since the last good checkpoint and checks the last one's outputs."""

from __future__ import annotations

import functools

import torch
from torch import nn

from models.distributed.world import World
from models.errors import TrainingError
from models.training.job import TrainingJob
from models.training.loop import make_step
from models.training.session import TrainingSession, checkpoint_folder, open_session


def explain(job: TrainingJob, world: World, step: int) -> TrainingError:
    """Return the error for a loss that is not finite at optimiser step `step`. Every rank must call it.

    Cost: the steps since the last checkpoint, or since the start.
    """
    session = open_session(job, world)
    good = session.progress.step
    cause = next((name for name in world.gather(_first_bad(session, step)) if name), "none found when taken again")
    fallback = f"the checkpoint of step {good} is kept in {checkpoint_folder(job)}" if good else "no step was kept"
    epoch = step // session.order.num_steps + 1
    return TrainingError(
        f"train_loss is not finite at step {step} (epoch {epoch}); first bad: {cause}; {fallback}: "
        f"lower train.lr (now {job.train.lr:g}), set train.clip_norm (now {job.train.clip_norm}), or look at the data"
    )


def _first_bad(session: TrainingSession, step: int) -> str | None:
    take, plan = make_step(session), session.order
    session.plan.learn(True)
    order = functools.lru_cache(1)(lambda epoch: session.train.order(epoch, plan))
    for at in range(session.progress.step, step):
        epoch, index = divmod(at, plan.num_steps)
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
