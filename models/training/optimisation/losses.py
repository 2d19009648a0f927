"""Loss functions, as sums over examples, and how outputs become predictions.

Losses are sums, not means, so that accumulation, uneven slices and any number of ranks give the same gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from models.data.preparation import ClassHead, Preparation
from models.data.target_encoding import LARGEST_LOGARITHM, TargetEncoding
from models.errors import UserCodeError
from models.kinds.task import TASKS, PerLink, PerTask, Task
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


def loss_name(task: Task, target: TargetEncoding, metric: str) -> str:
    """Return the loss for the task; for a regression the one that the goal's best prediction minimises.

    A ranking is fitted row by row, to the squared error of the grades: batches hold no whole groups.

    Source: Gneiting (2011), JASA 106: a model should be trained by a loss that is consistent with its evaluation.
    """
    name = TASKS[task].loss
    return _loss_of_goal(target, metric) if name == "goal" else name


def _loss_of_goal(target: TargetEncoding, metric: str) -> str:
    if quantile_of(metric) is not None:
        return "pinball"
    if metric in ("mae", "mape"):
        return "relative_l1" if metric == "mape" and not target.outputs else "l1"
    return "mse" if target.log_offset is None else "gamma"


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
    return summed(_form(preparation.task).of_examples(_row_loss(preparation, train, metric, targets, weights)))


def _of_members(losses: ExampleLoss) -> ExampleLoss:
    """Return a loss that also takes (batch, members, num_outputs), such as of TabM: the mean over the members' losses.

    So each member learns the target by itself; the loss of their mean would let them share the work.
    """

    def each(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if output.ndim < 3:
            return losses(output, target)
        batch, members = output.shape[:2]
        return losses(output.flatten(0, 1), target.repeat_interleave(members, dim=0)).view(batch, members).mean(dim=1)

    return each


def _of_positions(losses: ExampleLoss) -> ExampleLoss:
    """Return the loss of windows of a text for that of characters: the mean over the positions of a window."""

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return losses(output.flatten(0, 1), target.flatten()).view(target.shape).mean(dim=1)

    return loss


def _unchanged(losses: ExampleLoss) -> ExampleLoss:
    return losses


def _row_loss(
    preparation: Preparation, train: Train, metric: str, targets: torch.Tensor, weights: torch.Tensor | None
) -> ExampleLoss:
    name = loss_name(preparation.task, preparation.target, metric)
    weight = (
        class_weights(preparation.target, preparation.task, targets, weights)
        if train.class_weights == "balanced"
        else None
    )
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
    target: TargetEncoding, task: Task, targets: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor | None:
    """Return each class's weight n / (k n_c), 1 on average; None for regression. Source: scikit-learn's `balanced`.

    Of labels: (2, label), the weights of 0 and of 1 of each label. Rows count by their `weights` (example,).
    """
    row_weights = torch.ones(len(targets), dtype=torch.float64) if weights is None else weights.double()
    return _CLASS_WEIGHTS[task](target, targets, row_weights.to(targets.device))


def _weights_of_labels(target: TargetEncoding, targets: torch.Tensor, row_weights: torch.Tensor) -> torch.Tensor:
    total = float(row_weights.sum())
    ones = (
        ((targets > 0.5).double() * row_weights[:, None])
        .sum(dim=0)
        .clamp(min(1.0, total / 2), max(total - 1, total / 2))
    )
    return (total / (2 * torch.stack([total - ones, ones]))).float()


def _weights_of_classes(target: TargetEncoding, targets: torch.Tensor, row_weights: torch.Tensor) -> torch.Tensor:
    counts = torch.bincount(targets.long(), row_weights, minlength=len(target.class_names))
    counts = torch.where(counts > 0, counts, 1.0)
    return (float(row_weights.sum()) / (len(counts) * counts)).float()


def _no_weights(target: TargetEncoding, targets: torch.Tensor, row_weights: torch.Tensor) -> None:
    """Numbers and characters have no classes that could be rare."""


_CLASS_WEIGHTS: PerTask[Callable[[TargetEncoding, torch.Tensor, torch.Tensor], torch.Tensor | None]] = {
    "binary": _weights_of_classes,
    "multiclass": _weights_of_classes,
    "multilabel": _weights_of_labels,
    "regression": _no_weights,
    "quantile": _no_weights,
    "language": _no_weights,
    "ranking": _no_weights,
}


def settle(output: torch.Tensor, target: torch.Tensor, task: Task) -> torch.Tensor:
    """Return the part of a forward pass that the metrics need: the whole output as float32.

    For text only the bits of each character, (batch, position): all probabilities would fill the memory.
    """
    return _form(task).settle(output, target)


def settled_loss(
    share: torch.Tensor,
    target: torch.Tensor,
    loss: Loss,
    task: Task,
    weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the summed loss of an output of `settle`."""
    return _form(task).settled_loss(share, target, loss, weight)


def predictions(output: torch.Tensor, preparation: Preparation) -> NDArray[np.float64]:
    """Return the input of metrics: the second class's probability, all probabilities, or values in the target's unit.

    Of several outputs (example, output). Quantiles of a value are sorted, so that they never cross: sorting never makes
    the pinball loss larger. Source: Chernozhukov, Fernandez-Val and Galichon (2010), Econometrica 78(3). Those of an
    exported model are shifted as its graph shifts them (`models/export/quantile_shifts.py`), and its logits calibrated
    (`models/export/class_head.py`): a probability near 1 has lost the digits that tell a logit of 40 from one of 60.

    For text: the bits of each character, as `settle` returns them.
    """
    return _form(preparation.task).predictions(output.double(), preparation)


def ordered_quantiles(values: NDArray[np.float64], target: TargetEncoding) -> NDArray[np.float64]:
    """Return the quantiles of each true value in ascending order, (example, output); other outputs as they are."""
    if target.num_quantiles == 1:
        return values
    return np.sort(values.reshape(len(values), -1, target.num_quantiles), axis=2).reshape(values.shape)


def _own_loss(reference: str, base: Path, preparation: Preparation, targets: torch.Tensor) -> Loss:
    """Return the user's loss as a sum over examples, after a trial on two of them."""
    function = resolve(reference, base)

    def losses(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = call(function, f"train.loss: {reference}", output.float(), target)
        if not isinstance(loss, torch.Tensor) or loss.shape != target.shape[:1]:
            shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise UserCodeError(
                f"train.loss: {reference} gave back {shape}, expected the loss of each example, shape "
                f"{tuple(target.shape[:1])}: do not sum or average it"
            )
        return loss

    loss = summed(_form(preparation.task).of_own(losses))
    _form(preparation.task).check_own(loss, reference, preparation, targets)
    return loss


def _check_own(loss: Loss, reference: str, preparation: Preparation, targets: torch.Tensor) -> None:
    trial = torch.zeros((len(targets[:2]), preparation.num_outputs), requires_grad=True, device=targets.device)
    value = loss(trial, targets[:2])
    if not value.isfinite() or not value.requires_grad:
        raise UserCodeError(
            f"train.loss: {reference} gave back {value.tolist()} {'with' if value.requires_grad else 'without'} a "
            "gradient for outputs of 0, expected finite numbers that depend on the outputs by torch's functions"
        )


def _unchecked(loss: Loss, reference: str, preparation: Preparation, targets: torch.Tensor) -> None:
    """Check nothing: the targets of a text are the starts of its windows here."""


def _bce(output: torch.Tensor, target: torch.Tensor, smoothing: float, weight: torch.Tensor | None) -> torch.Tensor:
    element_weight = None if weight is None else torch.where(target > 0.5, weight[1], weight[0])
    if smoothing:
        target = target * (1 - smoothing) + smoothing / 2
    logits = _as_target(output, target)
    return _mean_of_outputs(F.binary_cross_entropy_with_logits(logits, target, weight=element_weight, reduction="none"))


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


def _float32(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return output.float()


def _bits(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    bits = _cross_entropy(output.flatten(0, 1), target.flatten(), 0.0, None) / math.log(2)
    return bits.view(target.shape)


def _loss_of_outputs(
    share: torch.Tensor, target: torch.Tensor, loss: Loss, weight: torch.Tensor | None
) -> torch.Tensor:
    return loss(share, target, weight)


def _loss_of_bits(share: torch.Tensor, target: torch.Tensor, loss: Loss, weight: torch.Tensor | None) -> torch.Tensor:
    return share.double().mean(dim=1).sum() * math.log(2)


def _one_or_several(output: torch.Tensor, target: TargetEncoding) -> torch.Tensor:
    """Return (example,) of one number or one probability, (example, output) of several."""
    return output if target.outputs else output[:, 0]


def _sigmoids(output: torch.Tensor, preparation: Preparation) -> NDArray[np.float64]:
    return _one_or_several(_calibrated(output, preparation.class_head), preparation.target).sigmoid().numpy()


def _softmax(output: torch.Tensor, preparation: Preparation) -> NDArray[np.float64]:
    return _calibrated(output, preparation.class_head).softmax(dim=1).numpy()


def _calibrated(output: torch.Tensor, head: ClassHead) -> torch.Tensor:
    """Return the logits with the slope and the offsets of the graph; one logit is that of class 1 of two."""
    return head.slope * output + torch.tensor(head.offsets[-output.shape[1] :] or 0.0, dtype=torch.float64)


def _own_unit(output: torch.Tensor, preparation: Preparation) -> NDArray[np.float64]:
    learnt = _one_or_several(output, preparation.target).numpy()
    if preparation.quantile_shifts:
        learnt = ordered_quantiles(learnt, preparation.target) + np.array(preparation.quantile_shifts)
    return ordered_quantiles(np.asarray(preparation.target.decode(learnt)), preparation.target)


def _as_settled(output: torch.Tensor, preparation: Preparation) -> NDArray[np.float64]:
    return output.numpy()


@dataclass(frozen=True)
class _OutputForm:
    """How losses and metrics read the outputs of a net."""

    predictions: Callable[[torch.Tensor, Preparation], NDArray[np.float64]]
    of_examples: Callable[[ExampleLoss], ExampleLoss] = _of_members
    """The loss of examples for one of rows, or of characters."""
    of_own: Callable[[ExampleLoss], ExampleLoss] = _of_members
    check_own: Callable[[Loss, str, Preparation, torch.Tensor], None] = _check_own
    settle: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = _float32
    settled_loss: Callable[[torch.Tensor, torch.Tensor, Loss, torch.Tensor | None], torch.Tensor] = _loss_of_outputs


_FORMS: PerLink[_OutputForm] = {
    "logistic": _OutputForm(_sigmoids),
    "softmax": _OutputForm(_softmax),
    "identity": _OutputForm(_own_unit),
    "text": _OutputForm(
        predictions=_as_settled,
        of_examples=_of_positions,
        of_own=_unchanged,
        check_own=_unchecked,
        settle=_bits,
        settled_loss=_loss_of_bits,
    ),
}


def _form(task: Task) -> _OutputForm:
    return _FORMS[TASKS[task].link]
