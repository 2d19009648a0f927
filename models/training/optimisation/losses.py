"""Loss functions, as sums over examples, and how outputs become predictions.

Losses are sums, not means, so that accumulation, uneven slices and any number of ranks give the same gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from models.data.preparation import LARGEST_LOGARITHM, Preparation, TargetEncoding
from models.errors import UserCodeError
from models.metrics.metrics import quantile_of
from models.project_spec.blocks import Train
from models.project_spec.references import call, resolve
from models.training.optimisation.chunked_loss import MANY_CLASSES, chunked_cross_entropy

LARGEST_RATIO = 10.0
"""Of the logarithm of value / prediction in the gamma loss: a far outlier must not overflow."""

ExampleLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(output, target) -> the loss of each example (batch,), float32."""


class Loss(Protocol):
    """The loss of a batch: the sum over its examples, each times its weight."""

    def __call__(
        self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, /
    ) -> torch.Tensor:
        """Return the summed loss, a float32 scalar; `weight` (batch,) is None for all ones."""
        ...


def summed(losses: ExampleLoss) -> Loss:
    """Return the weighted sum over the examples of a loss."""

    def loss(output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, /) -> torch.Tensor:
        each = losses(output, target)
        return (each if weight is None else each * weight).sum()

    return loss


def loss_name(preparation: Preparation, metric: str) -> str:
    """Return the loss for the task; for a regression the one that the goal's best prediction minimises.

    A ranking is fitted row by row, to the squared error of the grades: batches hold no whole groups.

    Source: Gneiting (2011), JASA 106: a model should be trained by a loss that is consistent with its evaluation.
    """
    if preparation.task in ("binary", "multilabel"):
        return "bce"
    if preparation.task == "quantile":
        return "pinball"
    if preparation.task in ("multiclass", "language"):
        return "cross_entropy"
    if quantile_of(metric) is not None:
        return "pinball"
    if metric in ("mae", "mape"):
        return "relative_l1" if metric == "mape" and not preparation.target.outputs else "l1"
    return "mse" if preparation.target.log_offset is None else "gamma"


def make_loss(
    preparation: Preparation,
    train: Train,
    metric: str,
    targets: torch.Tensor,
    base: Path = Path(),
    weights: torch.Tensor | None = None,
) -> Loss:
    """Return a function (output (batch, num_outputs), target (batch,), weight (batch,) or None) -> summed loss.

    Of several outputs the target is (batch, num_outputs), and the loss of an example is the mean over its outputs. In
    training a net may return an output of each of several members, (batch, members, num_outputs). For text, (batch,
    position, num_outputs) and (batch, position): the mean over positions, summed over examples.

    Args:
        preparation: Holds the task and its classes.
        train: Label smoothing and class weights.
        metric: Short name of the goal's metric.
        targets: All training targets, from which balanced class weights are computed.
        base: The folder of the spec, where `train.loss` starts.
        weights: Of all training rows (example,), which balanced class weights count; None: all ones.

    Raises:
        UsageError: There is no function of the name in `train.loss`.
        UserCodeError: The user's loss raised, or does not return one finite number for each example.
    """
    if train.loss is not None:
        return _own_loss(train.loss, base, preparation, targets)
    return summed(_of_members(_example_loss(preparation, train, metric, targets, weights), preparation))


def _of_members(losses: ExampleLoss, preparation: Preparation) -> ExampleLoss:
    """Return a loss that also takes (batch, members, num_outputs), such as of TabM: the mean over the members' losses.

    So each member learns the target by itself; the loss of their mean would let them share the work.
    """
    if preparation.task == "language":
        return losses

    def each(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if output.ndim < 3:
            return losses(output, target)
        batch, members = output.shape[:2]
        return losses(output.flatten(0, 1), target.repeat_interleave(members, dim=0)).view(batch, members).mean(dim=1)

    return each


def _example_loss(
    preparation: Preparation, train: Train, metric: str, targets: torch.Tensor, weights: torch.Tensor | None
) -> ExampleLoss:
    name = loss_name(preparation, metric)
    weight = class_weights(preparation, targets, weights) if train.class_weights == "balanced" else None
    if preparation.task == "language":
        return partial(_next_character, smoothing=train.label_smoothing)
    if name == "bce":
        return partial(_bce, smoothing=train.label_smoothing, weight=weight)
    if name == "cross_entropy":
        return partial(_cross_entropy, smoothing=train.label_smoothing, weight=weight)
    if name == "relative_l1":
        return partial(_relative_l1, encoding=preparation.target)
    if name == "pinball":
        quantile = quantile_of(metric)
        levels = [output.quantile for output in preparation.target.outputs] if quantile is None else [quantile]
        return partial(_pinball, levels=torch.tensor(levels, dtype=torch.float32, device=targets.device))
    if name == "gamma":
        return partial(_gamma, scale=preparation.target.scale)
    return partial(_distance, distance=F.l1_loss if name == "l1" else F.mse_loss)


def class_weights(
    preparation: Preparation, targets: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor | None:
    """Return each class's weight n / (k n_c), 1 on average; None for regression. Source: scikit-learn's `balanced`.

    Of labels: (2, label), the weights of 0 and of 1 of each label. Rows count by their `weights` (example,).
    """
    own = torch.ones(len(targets), dtype=torch.float64) if weights is None else weights.double()
    own, total = own.to(targets.device), float(own.sum())
    if preparation.task == "multilabel":
        ones = (
            ((targets > 0.5).double() * own[:, None]).sum(dim=0).clamp(min(1.0, total / 2), max(total - 1, total / 2))
        )
        return (total / (2 * torch.stack([total - ones, ones]))).float()
    if preparation.target.classes is None:
        return None
    counts = torch.bincount(targets.long(), own, minlength=len(preparation.target.classes))
    counts = torch.where(counts > 0, counts, 1.0)
    return (total / (len(counts) * counts)).float()


def settle(output: torch.Tensor, target: torch.Tensor, preparation: Preparation) -> torch.Tensor:
    """Return the part of a forward pass that the metrics need: the whole output as float32.

    For text only the bits of each character, (batch, position): all probabilities would fill the memory.
    """
    if preparation.task != "language":
        return output.float()
    bits = _cross_entropy(output.flatten(0, 1), target.flatten(), 0.0, None) / math.log(2)
    return bits.view(target.shape)


def settled_loss(
    share: torch.Tensor,
    target: torch.Tensor,
    loss: Loss,
    preparation: Preparation,
    weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the summed loss of an output of `settle`."""
    if preparation.task != "language":
        return loss(share, target, weight)
    return share.double().mean(dim=1).sum() * math.log(2)


def predictions(output: torch.Tensor, preparation: Preparation) -> NDArray[np.float64]:
    """Return the input of metrics: the second class's probability, all probabilities, or values in the target's unit.

    Of several outputs (example, output). Quantiles of a value are sorted, so that they never cross: sorting never makes
    the pinball loss larger. Source: Chernozhukov, Fernandez-Val and Galichon (2010), Econometrica 78(3). Those of an
    exported model are shifted as its graph shifts them (`models/export/quantile_shifts.py`).

    For text: the bits of each character, as `settle` returns them.
    """
    output = output.double()
    if preparation.task == "language":
        return output.numpy()
    if preparation.task == "binary":
        return output[:, 0].sigmoid().numpy()
    if preparation.task == "multiclass":
        return output.softmax(dim=1).numpy()
    if preparation.task == "multilabel":
        return output.sigmoid().numpy()
    learnt = (output if preparation.target.outputs else output[:, 0]).numpy()
    if preparation.quantile_shifts:
        learnt = ordered_quantiles(learnt, preparation.target) + np.array(preparation.quantile_shifts)
    values = np.asarray(preparation.target.decode(learnt))
    return ordered_quantiles(values, preparation.target) if preparation.task == "quantile" else values


def ordered_quantiles(values: NDArray[np.float64], target: TargetEncoding) -> NDArray[np.float64]:
    """Return the quantiles of each true value in ascending order, (example, output); other outputs as they are."""
    if target.num_quantiles == 1:
        return values
    return np.sort(values.reshape(len(values), -1, target.num_quantiles), axis=2).reshape(values.shape)


def _own_loss(reference: str, base: Path, preparation: Preparation, targets: torch.Tensor) -> Loss:
    """Return the user's loss as a sum over examples, after a trial on two of them."""
    function = resolve(reference, base)

    def losses(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        each = call(function, f"train.loss: {reference}", output.float(), target)
        if not isinstance(each, torch.Tensor) or each.shape != target.shape[:1]:
            shape = tuple(each.shape) if isinstance(each, torch.Tensor) else type(each).__name__
            raise UserCodeError(
                f"train.loss: {reference} gave back {shape}, expected the loss of each example, shape "
                f"{tuple(target.shape[:1])}: do not sum or average it"
            )
        return each

    loss = summed(_of_members(losses, preparation))
    if preparation.task == "language":
        return loss  # the targets here are the starts of windows
    trial = torch.zeros((len(targets[:2]), preparation.num_outputs), requires_grad=True, device=targets.device)
    value = loss(trial, targets[:2])
    if not value.isfinite() or not value.requires_grad:
        raise UserCodeError(
            f"train.loss: {reference} gave back {value.tolist()} {'with' if value.requires_grad else 'without'} a "
            "gradient for outputs of 0, expected finite numbers that depend on the outputs by torch's functions"
        )
    return loss


def _next_character(output: torch.Tensor, target: torch.Tensor, smoothing: float) -> torch.Tensor:
    logits, wanted = output.flatten(0, 1), target.flatten()
    return _cross_entropy(logits, wanted, smoothing, None).view(target.shape).mean(dim=1)


def _bce(output: torch.Tensor, target: torch.Tensor, smoothing: float, weight: torch.Tensor | None) -> torch.Tensor:
    each = None if weight is None else torch.where(target > 0.5, weight[1], weight[0])
    if smoothing:
        target = target * (1 - smoothing) + smoothing / 2
    logits = _as_target(output, target)
    return _mean_of_outputs(F.binary_cross_entropy_with_logits(logits, target, weight=each, reduction="none"))


def _cross_entropy(
    output: torch.Tensor, target: torch.Tensor, smoothing: float, weight: torch.Tensor | None
) -> torch.Tensor:
    if output.shape[1] >= MANY_CLASSES and weight is None:
        return chunked_cross_entropy(output, target, smoothing)
    return F.cross_entropy(output.float(), target, weight=weight, label_smoothing=smoothing, reduction="none")


def _distance(output: torch.Tensor, target: torch.Tensor, distance: Callable[..., torch.Tensor]) -> torch.Tensor:
    return _mean_of_outputs(distance(_as_target(output, target), target, reduction="none"))


def _relative_l1(output: torch.Tensor, target: torch.Tensor, encoding: TargetEncoding) -> torch.Tensor:
    """Return the absolute errors in the target's own unit, each divided by the true value; a true 0 counts nothing."""
    error = (_decoded(output[:, 0].float(), encoding) - _decoded(target, encoding)).abs()
    return error * relative_weights(target, encoding)


def _decoded(learnt: torch.Tensor, encoding: TargetEncoding) -> torch.Tensor:
    """Return `encoding.decode` of a tensor, with gradients: so without its floor of zero."""
    values = learnt * encoding.scale + encoding.shift
    if encoding.log_offset is None:
        return values
    return values.clamp(max=LARGEST_LOGARITHM).exp() - encoding.log_offset


def relative_weights(target: torch.Tensor, encoding: TargetEncoding) -> torch.Tensor:
    """Return 1 / |value| of each encoded target, 0 for a value within a millionth of the spread around 0."""
    size = _decoded(target, encoding).abs()
    return torch.where(size > 1e-6 * encoding.spread, 1 / size.clamp(min=1e-6 * encoding.spread), 0.0)


def _gamma(output: torch.Tensor, target: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the deviances of the gamma distribution, halved, for a target on the log scale.

    It is least for the mean of the values themselves, so nothing has to be corrected when the logarithm is undone;
    the squared error of logarithms would predict the geometric mean, which is too low.

    Source: McCullagh and Nelder (1989), Generalized Linear Models, 8.3.
    """
    ratio = ((target - _as_target(output, target)) * scale).clamp(max=LARGEST_RATIO)
    return _mean_of_outputs(ratio.exp() - ratio - 1)


def _pinball(output: torch.Tensor, target: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    error = target.reshape(output.shape) - output.float()
    return torch.maximum(levels * error, (levels - 1) * error).mean(dim=1)


def _as_target(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the output in the shape of the target, (batch,) or (batch, num_outputs)."""
    return output[:, 0].float() if target.ndim == 1 else output.float()


def _mean_of_outputs(loss: torch.Tensor) -> torch.Tensor:
    """Return the loss of each example (batch,)."""
    return loss if loss.ndim == 1 else loss.mean(dim=1)
