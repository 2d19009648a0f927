"""The fit of `descriptors`: filters of whitened patches from training pictures, then a linear model of all descriptors.

The filters are centres of a spherical k-means of whitened patches. The penalty is that of the least loss on validation,
from strong to weak; each fit begins with the weights of the one before.
Source: Coates, Ng and Lee, An analysis of single-layer networks in unsupervised feature learning (2011).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

import torch
from torch import nn

from models.distributed.order import seed_of
from models.nets.build import build_net, check_arguments
from models.nets.descriptors import CONTRAST, Descriptors, build
from models.nets.linear import Linear
from models.nets.sizes import Sizes
from models.training.batches.example_set import WEIGHT, ExampleSet, TableSet
from models.training.convex.fit import ConvexFit, minimise, settings_of
from models.training.job import TrainingJob, TrainingResult
from models.training.loop import Report
from models.training.model_choice import ValidationScore

_PENALTIES = (3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)
"""Values of `l2` that are tried, until the loss on validation grows."""
_NUM_PATCHES = 10_000
_ROUNDS = 8
"""Patches and rounds of the k-means."""
_NOISE = 0.1
"""Added to the variances of standardised patches before they are whitened."""
_EMPTY = 1e-3
"""Of a centre before it: one without a row stays."""
_PASS = 256
_LEAST = 1e-6
"""Standard deviation below which a descriptor is constant."""


def fit_descriptors(job: TrainingJob, report: Report, restarts: int = 0) -> TrainingResult:
    """Learn the filters and fit the linear model. Runs in one process.

    Cost: the descriptors of all pictures once, held in memory as float32 (about 17 kB for a picture of colours), and at
    most `iterations` times one or two passes over them for each penalty.

    Raises:
        UsageError: An argument is unknown or out of range.
        TrainingError: The loss is not finite.
        StoreError: The disk is full or cannot be written.
    """
    fit = ConvexFit.open(job)
    check_arguments("descriptors", build, job.model.arguments, reserved=("sizes",))
    penalties, iterations = settings_of(job.model.arguments, _PENALTIES)
    net = cast("Descriptors", build_net(job.model, Sizes.of(fit.preparation, job.model.net), job.project))
    pixels = fit.preparation.required_pixels
    net.mean.copy_(torch.tensor(pixels.mean).view(-1, 1, 1))
    net.std.copy_(torch.tensor(pixels.std).view(-1, 1, 1))
    _learn_filters(net, fit.train, torch.Generator().manual_seed(seed_of("patches", job.train.seed)))
    fit = replace(fit, train=_described(net, fit.train), validation=_described(net, fit.validation))
    _standardise(net, fit.train.tensors["numeric"], fit.train.weights())
    for side in (fit.train, fit.validation):
        side.tensors["numeric"].sub_(net.shift).mul_(net.scale)
    best = _best(fit, net.head, penalties, iterations)
    net.head.load_state_dict(best.weights)
    chosen = {"l2": best.l2, "num_features": len(net.shift)}
    return fit.finish(net, best.scored, best.train_loss, chosen, report, restarts)


class _Fitted(NamedTuple):
    """The linear model of a penalty: its weights, its loss of the training rows, and what it reached on validation."""

    l2: float
    weights: dict[str, torch.Tensor]
    train_loss: float
    scored: tuple[ValidationScore, float]


def _best(fit: ConvexFit, head: Linear, penalties: list[float], iterations: int) -> _Fitted:
    """Return the fit of the least loss on validation; a weaker penalty than the first worse one is not tried."""
    best: _Fitted | None = None
    for l2 in penalties:
        train_loss = minimise(head, fit.train, fit.losses.train, l2, iterations)
        scored = fit.scored(head)
        if best is not None and not scored[1] < best.scored[1]:
            break
        weights = {name: value.clone() for name, value in head.state_dict().items()}
        best = _Fitted(l2, weights, train_loss, scored)
    assert best is not None  # there is at least one penalty
    return best


@torch.no_grad()
def _described(net: Descriptors, pictures: ExampleSet) -> TableSet:
    """Return the pictures' descriptors as rows of a table, float32 (example, feature)."""
    positions = torch.arange(len(pictures))
    numbers = torch.empty(len(pictures), len(net.shift))
    for some in torch.split(positions, _PASS):
        numbers[some[0] : some[-1] + 1] = net.features(pictures.gather(some)["image"])
    weights = pictures.weights()
    return TableSet(
        tensors={"numeric": numbers, **({} if weights is None else {WEIGHT: weights})},
        target=pictures.targets(),
        target_type=pictures.target_type,
        keep=None,
        value=None if pictures.value is None else torch.from_numpy(pictures.values()),
    )


def _standardise(net: Descriptors, numbers: torch.Tensor, weights: torch.Tensor | None) -> None:
    """Learn the mean and the spread of each descriptor of training rows, float32 (example, feature), by weight."""
    shares = torch.ones(len(numbers)) if weights is None else weights
    shares = shares.double() / shares.double().sum()
    mean, square = torch.zeros(len(net.shift)).double(), torch.zeros(len(net.shift)).double()
    for part, share in zip(torch.split(numbers, _PASS), torch.split(shares, _PASS), strict=True):
        mean += share @ part.double()
        square += share @ part.double().square()
    spread = (square - mean.square()).clamp(min=0).sqrt()
    net.shift.copy_(mean)
    net.scale.copy_(torch.where(spread < _LEAST, 0.0, 1 / spread))


@torch.no_grad()
def _learn_filters(net: Descriptors, pictures: ExampleSet, generator: torch.Generator) -> None:
    """Learn the filters of the patches from training pictures, which are drawn by their weights."""
    patches = net.patches
    standardised = _standard_patches(net, pictures, generator)
    mean = standardised.mean(dim=0)
    centred = standardised - mean
    variances, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
    whitening = (axes / (variances.clamp(min=0) + _NOISE).sqrt()) @ axes.T
    whitened = centred @ whitening
    centres = _centres(whitened, len(patches.bias))
    filters = centres @ whitening
    patches.filters.copy_(filters.view_as(patches.filters))
    patches.bias.copy_(-filters @ mean)
    patches.threshold.copy_((whitened[:_PASS] @ centres.T).abs().median())


def _standard_patches(net: Descriptors, pictures: ExampleSet, generator: torch.Generator) -> torch.Tensor:
    """Return patches of pictures less their mean, by their contrast, float64 (patch, channel * side * side)."""
    weights, side, parts = pictures.weights(), net.patches.side, []
    chances = torch.ones(len(pictures)) if weights is None else weights
    drawn = torch.multinomial(chances, _NUM_PATCHES, replacement=True, generator=generator)
    for some in torch.split(drawn.sort().values, _PASS):
        levels = net.small(net.levels(pictures.gather(some)["image"]))
        rows, columns = (
            torch.randint(length - side + 1, (len(some), 1), generator=generator) + torch.arange(side)
            for length in levels.shape[2:]
        )
        of_picture = torch.arange(len(some)).view(-1, 1, 1)
        cut = levels.permute(0, 2, 3, 1)[of_picture, rows.unsqueeze(2), columns.unsqueeze(1)]
        parts.append(cut.permute(0, 3, 1, 2).flatten(1).double())
    whole = torch.cat(parts)
    centred = whole - whole.mean(dim=1, keepdim=True)
    shuffled = centred[torch.randperm(len(centred), generator=generator)]
    return shuffled / (shuffled.square().mean(dim=1, keepdim=True) + CONTRAST).sqrt()


def _centres(rows: torch.Tensor, num: int) -> torch.Tensor:
    """Return the centres of a spherical k-means (centre, number), of length 1; they begin as the first rows.

    A row counts for its centre by how far it points that way.
    """
    centres = nn.functional.normalize(rows[:num])
    for _ in range(_ROUNDS):
        answers, nearest = (rows @ centres.T).max(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, rows * answers.unsqueeze(1))
        centres = nn.functional.normalize(sums + _EMPTY * centres)
    return centres
