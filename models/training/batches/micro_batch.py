"""The batch of one micro-step of one rank: examples are gathered, augmented if the spec says so, and masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from models.distributed.order import seed_of
from models.kinds.data_kind import PerDataKind
from models.training.batches.augment import Augmenter, is_on
from models.training.batches.example_set import ExampleSet, Inputs
from models.training.batches.own_augment import OwnAugmentation
from models.training.job import TrainingJob
from models.training.optimisation.pretrain import MaskingScheme


@dataclass(frozen=True)
class Batch:
    """Inputs, target and weights of some examples; `mixed` holds mixup's share that stays, and each partner's index."""

    inputs: Inputs
    target: torch.Tensor
    weight: torch.Tensor | None = None
    mixed: tuple[float, torch.Tensor] | None = None


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches that depend only on the seed and their position in the training."""

    job: TrainingJob
    examples: ExampleSet
    hiding: MaskingScheme | None = None
    own: OwnAugmentation | None = None

    def at(self, positions: torch.Tensor, epoch: int, seat: int, rank: int) -> Batch:
        """Return the examples at `positions` as `rank` sees them in micro-step `seat` of `epoch`."""
        train, examples = self.job.train, self.examples
        if self.hiding is not None:
            generator = np.random.default_rng(seed_of("hide", train.seed, epoch, seat, rank))
            return Batch(*self.hiding.hide(examples.gather(positions), generator))
        target, weight = examples.gather_target(positions), examples.gather_weight(positions)
        if not is_on(train.augment):
            return Batch(examples.gather(positions), target, weight)
        changer = Augmenter.at(train.augment, train.seed, epoch, seat, rank)
        seed = seed_of("own augment", train.seed, epoch, seat, rank)
        return _AUGMENTED[examples.KIND](self, positions, Batch({}, target, weight), changer, seed)


def _disturbed(maker: BatchMaker, positions: torch.Tensor, batch: Batch, changer: Augmenter, seed: int) -> Batch:
    """Return the batch with inputs that the spec's noise and the user's function change."""
    inputs = changer.disturb(maker.examples.gather(positions))
    return replace(batch, inputs=inputs if maker.own is None else maker.own.change(inputs, seed))


def _moved(maker: BatchMaker, positions: torch.Tensor, batch: Batch, changer: Augmenter, seed: int) -> Batch:
    """Return the batch with images that are moved before they are scaled, and mixed after it."""

    def changed(image: torch.Tensor) -> torch.Tensor:
        moved = changer.move(image)
        return moved if maker.own is None else maker.own.change({"image": moved}, seed)["image"]

    inputs = maker.examples.gather(positions, changed)
    mixed = changer.mix(len(positions))
    if mixed is None:
        return replace(batch, inputs=inputs)
    share, partners = mixed
    partners = partners.to(batch.target.device)
    image = inputs["image"] * share + inputs["image"][partners] * (1 - share)
    return replace(batch, inputs={"image": image}, mixed=(share, partners))


Augmented = Callable[[BatchMaker, torch.Tensor, Batch, Augmenter, int], Batch]
_AUGMENTED: PerDataKind[Augmented] = {"table": _disturbed, "image": _moved, "series": _disturbed, "text": _disturbed}
