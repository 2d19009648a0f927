"""Loss functions, as sums over examples, and how outputs become predictions.

Losses are sums, not means, so that accumulation, uneven slices and any number of ranks give the same gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.project_spec.blocks import Train

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def loss_name(preparation: Preparation, metric: str) -> str:
    """Return the loss for the task: huber if the goal is the absolute error, which it approximates closely."""
    if preparation.task in ("binary", "multilabel"):
        return "bce"
    if preparation.task == "quantile":
        return "pinball"
    if preparation.task in ("multiclass", "language"):
        return "cross_entropy"
    return "huber" if metric in ("mae", "mape") else "mse"


def make_loss(preparation: Preparation, train: Train, metric: str, targets: torch.Tensor) -> Loss:
    """Return a function (output (batch, num_outputs), target (batch,)) -> summed loss, a float32 scalar.

    Of several outputs the target is (batch, num_outputs), and the loss of an example is the mean over its outputs. For
    text, (batch, position, num_outputs) and (batch, position): the mean over positions, summed over examples.

    Args:
        preparation: Holds the task and its classes.
        train: Label smoothing and class weights.
        metric: Short name of the goal's metric.
        targets: All training targets, from which balanced class weights are computed.
    """
    name = loss_name(preparation, metric)
    weight = class_weights(preparation, targets) if train.class_weights == "balanced" else None
    if preparation.task == "language":
        return partial(_next_character, smoothing=train.label_smoothing)
    if name == "pinball":
        levels = [output.quantile for output in preparation.target.outputs]
        return partial(_pinball, levels=torch.tensor(levels, dtype=torch.float32, device=targets.device))
    if name == "bce":
        return partial(_bce, smoothing=train.label_smoothing, weight=weight)
    if name == "cross_entropy":
        return partial(_cross_entropy, smoothing=train.label_smoothing, weight=weight)
    return partial(_distance, huber=name == "huber")


def class_weights(preparation: Preparation, targets: torch.Tensor) -> torch.Tensor | None:
    """Return each class's weight n / (k n_c), 1 on average; None for regression. Source: scikit-learn's `balanced`.

    Of labels: (2, label), the weights of 0 and of 1 of each label.
    """
    if preparation.task == "multilabel":
        ones = (targets > 0.5).double().sum(dim=0).clamp(1, max(1, len(targets) - 1))
        return (len(targets) / (2 * torch.stack([len(targets) - ones, ones]))).float().to(targets.device)
    if preparation.target.classes is None:
        return None
    counts = torch.bincount(targets.long(), minlength=len(preparation.target.classes)).clamp(min=1)
    return (len(targets) / (len(counts) * counts.double())).float().to(targets.device)


def settle(output: torch.Tensor, target: torch.Tensor, preparation: Preparation) -> torch.Tensor:
    """Return the part of a forward pass that the metrics need: the whole output as float32.

    For text only the bits of each character, (batch, position): all probabilities would fill the memory.
    """
    if preparation.task != "language":
        return output.float()
    bits = F.cross_entropy(output.flatten(0, 1).float(), target.flatten(), reduction="none") / math.log(2)
    return bits.view(target.shape)


def settled_loss(share: torch.Tensor, target: torch.Tensor, loss: Loss, preparation: Preparation) -> torch.Tensor:
    """Return the summed loss of an output of `settle`."""
    if preparation.task != "language":
        return loss(share, target)
    return share.double().mean(dim=1).sum() * math.log(2)


def predictions(output: torch.Tensor, preparation: Preparation) -> NDArray[np.float64]:
    """Return the input of metrics: the second class's probability, all probabilities, or values in the target's unit.

    Of several outputs (example, output). Quantiles are sorted, so that they never cross: sorting never makes the
    pinball loss larger. Source: Chernozhukov, Fernandez-Val and Galichon (2010), Econometrica 78(3).

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
    outputs = preparation.target.outputs
    if outputs:
        scale, shift = (output.new_tensor([getattr(each, name) for each in outputs]) for name in ("scale", "shift"))
        values = output * scale + shift
        return (values.sort(dim=1).values if preparation.task == "quantile" else values).numpy()
    return (output[:, 0] * preparation.target.scale + preparation.target.shift).numpy()


def _next_character(output: torch.Tensor, target: torch.Tensor, smoothing: float) -> torch.Tensor:
    logits, wanted = output.flatten(0, 1).float(), target.flatten()
    return F.cross_entropy(logits, wanted, label_smoothing=smoothing, reduction="sum") / target.shape[1]


def _bce(output: torch.Tensor, target: torch.Tensor, smoothing: float, weight: torch.Tensor | None) -> torch.Tensor:
    each = None if weight is None else torch.where(target > 0.5, weight[1], weight[0])
    if smoothing:
        target = target * (1 - smoothing) + smoothing / 2
    logits, num_outputs = _as_target(output, target)
    return F.binary_cross_entropy_with_logits(logits, target, weight=each, reduction="sum") / num_outputs


def _cross_entropy(
    output: torch.Tensor, target: torch.Tensor, smoothing: float, weight: torch.Tensor | None
) -> torch.Tensor:
    return F.cross_entropy(output.float(), target, weight=weight, label_smoothing=smoothing, reduction="sum")


def _distance(output: torch.Tensor, target: torch.Tensor, huber: bool) -> torch.Tensor:
    value, num_outputs = _as_target(output, target)
    distance = F.huber_loss if huber else F.mse_loss
    return distance(value, target, reduction="sum") / num_outputs


def _pinball(output: torch.Tensor, target: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    error = target - output.float()
    return torch.maximum(levels * error, (levels - 1) * error).mean(dim=1).sum()


def _as_target(output: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the output in the shape of the target, (batch,) or (batch, num_outputs), and the number of outputs."""
    return (output[:, 0].float(), 1) if target.ndim == 1 else (output.float(), target.shape[1])
