"""Evaluation: loss and metric on the validation examples, with a share for each rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from models.distributed.order import seed_of, share
from models.kinds.data_kind import PerDataKind
from models.nets.arguments import whole_numbers
from models.project_spec.references import call
from models.training.model_choice import ValidationScore, as_array, score
from models.training.optimisation.losses import predictions, settle, settled_loss
from models.training.optimisation.pretrain import LOSS, MaskingScheme
from models.training.session import TrainingSession

# Rows of a net in one forward pass without gradients: large enough to be fast, small enough to stay in the cache. TabM
# has a row of each member for an example: with 4,096 examples its evaluation held more memory than its training.
# A row with words is as long as a window of a series.
_BATCH: PerDataKind[int] = {"table": 4096, "image": 256, "series": 512, "text": 64}


@torch.no_grad()
def evaluate(session: TrainingSession) -> dict[str, float]:
    """Return `val_loss` and the score's values on rank 0, an empty dict on the others. Every rank must call it.

    A pretraining returns only `val_pretrain_loss`.
    """
    world, plan, examples = session.world, session.plan, session.validation
    plan.spread_buffers()
    plan.learn(False)
    start, stop = share(0, len(examples), world.data_rank, world.data_size)
    if session.batches.hiding is not None:
        return _reconstruction(session, session.batches.hiding, start, stop)
    output = _outputs(session, start, stop)
    plan.learn(True)
    targets, weights = examples.targets(), examples.weights()
    counts = world.is_output_rank and stop > start
    loss = output.new_zeros((), dtype=torch.float64)
    if counts:
        share_of_weights = None if weights is None else weights[start:stop].to(output.device)
        loss = settled_loss(
            output, targets[start:stop], session.loss, session.preparation.task, share_of_weights
        ).double()
    world.total(loss)
    joined = world.join_shares(output, len(examples))
    if not world.is_first:
        return {}
    metric, predicted = session.metric, predictions(joined.cpu(), session.preparation)
    latest: ValidationScore = call(
        score, metric.name, metric, session.preparation.task, examples.values(), predicted, as_array(weights)
    )
    return {"val_loss": float(loss) / examples.total_weight, **latest.values(metric.name)}


def _outputs(session: TrainingSession, start: int, stop: int) -> torch.Tensor:
    """Return the net's settled outputs (see `settle`) for a range of examples."""
    parts = []
    for rows, count in _spans(session, start, stop):
        output = session.plan.outputs(session.validation.gather(rows))
        settled_output = settle(output, session.validation.gather_target(rows), session.preparation.task)
        parts.append(settled_output[:count])
        session.world.beat()
    return torch.cat(parts)


def _reconstruction(session: TrainingSession, hiding: MaskingScheme, start: int, stop: int) -> dict[str, float]:
    """Return the loss on masked parts of the validation inputs; every epoch has the same masks."""
    loss = torch.zeros((), dtype=torch.float64, device=session.world.device)
    for rows, count in _spans(session, start, stop):
        generator = np.random.default_rng(seed_of("hide", session.job.train.seed, "validation", int(rows[0])))
        inputs, target = hiding.hide(session.validation.gather(rows), generator)
        loss += hiding.loss(session.plan.outputs(inputs)[:count], target[:count]).double()
    session.plan.learn(True)
    session.world.total(loss)
    return {f"val_{LOSS}": float(loss) / len(session.validation)} if session.world.is_first else {}


def _spans(session: TrainingSession, start: int, stop: int) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield the rows of a range of examples, batch by batch, and how many of these rows count.

    Every rank yields the same number of batches, because most parallel plans communicate in each pass.
    """
    examples, model = session.validation, session.job.model
    largest_batch = _BATCH["series" if "words" in examples.tensors else examples.KIND]
    size = max(1, largest_batch // whole_numbers(model.net, model.arguments).get("members", 1))
    longest = -(-len(examples) // session.world.data_size)
    for low in range(start, start + longest, size):
        # A rank with a smaller share takes part with any example and drops the output.
        rows = torch.arange(low, max(low + 1, min(low + size, stop)), device=examples.target.device)
        yield rows.clamp(max=len(examples) - 1), max(0, stop - low)
