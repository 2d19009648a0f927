"""The objective of a training stage: net, loss, and the metric that picks the best epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import nn

from models.data.preparation import Preparation
from models.metrics.metrics import Metric, resolve_metric
from models.nets.build import build_net
from models.nets.catalogue import net_name
from models.nets.sizes import Sizes
from models.training.job import TrainingJob
from models.training.optimisation.fine_tuning import freeze, load_origin
from models.training.optimisation.losses import Loss, make_loss
from models.training.optimisation.pretrain import LOSS, MaskingScheme, reconstructor


@dataclass(frozen=True)
class Objective:
    """The objective of one stage; `hiding` is set if the stage learns the inputs rather than the target."""

    net: nn.Module
    loss: Loss
    metric: Metric
    hiding: MaskingScheme | None = None


def make_purpose(job: TrainingJob, preparation: Preparation, targets: torch.Tensor) -> Objective:
    """Build the net from torch's generator, load the job's initial weights, and freeze the layers of the spec.

    Args:
        job: The job.
        preparation: The preparation of its data.
        targets: The training targets, from which balanced class weights are computed.

    Raises:
        UsageError, UserCodeError: The net or the metric does not match the spec.
        StoreError, TrainingError: The initial weights cannot be read, or do not fit.
    """
    sizes = Sizes.of(preparation)
    net = build_net(job.model, sizes, job.project)
    if job.start is not None:
        load_origin(net, job.start, preparation, job.train.start is not None and job.train.start.partial)
    if job.stage == "pretrain":
        assert job.train.pretrain is not None
        hiding = MaskingScheme(sizes, job.train.pretrain)
        metric = Metric(LOSS, "minimize", (), _unused)
        return Objective(reconstructor(net, sizes, net_name(job.model.net, sizes.kind)), hiding.loss, metric, hiding)
    freeze(net, job.train)
    metric = resolve_metric(job.metric, preparation.task, job.project, job.direction)
    return Objective(net, make_loss(preparation, job.train, metric.name, targets), metric)


def _unused(*_: object) -> NoReturn:
    raise AssertionError("a pretraining is judged by its loss")
