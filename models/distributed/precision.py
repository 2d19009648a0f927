"""Precision: autocast by the spec, and the loss scaling that fp16 needs."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

from models.errors import UsageError
from models.project_spec.blocks import Train

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# Source: torch.amp.GradScaler's defaults.
FIRST_SCALE, GROWTH_STEPS = 2.0**16, 2000


def check_precision(train: Train, device: torch.device) -> None:
    """Refuse what this device cannot do, or does too slowly to mean.

    Raises:
        UsageError: Says why, and what to take instead.
    """
    if train.precision == "fp16" and device.type == "cpu":
        raise UsageError(
            "train.precision: got fp16 on a CPU, where it runs at a hundredth of the speed of fp32: take bf16 or fp32"
        )


def autocast(train: Train, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The context of a forward pass: products in the spec's precision, sums and norms in fp32."""
    if train.precision in _TYPES:
        return torch.autocast(device.type, dtype=_TYPES[train.precision])
    return contextlib.nullcontext()


def sharding_policy(train: Train, device: torch.device) -> Any:
    """The mixed precision of sharded parameters: on a GPU products in the low type, gradient sums in fp32.

    On a CPU in fp32: autocast casts the inputs of a norm on a GPU alone, and a norm takes no mixed types.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if train.precision not in _TYPES or device.type == "cpu":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=_TYPES[train.precision], reduce_dtype=torch.float32, cast_forward_inputs=False
    )


class LossScaler:
    """A factor on the loss that keeps fp16 gradients off zero: halved when they overflow, doubled after a long calm.

    torch.amp.GradScaler knows neither pipeline stages nor plans whose ranks hold different shards; this one goes by
    the joint norm, which all ranks share.
    Source: Micikevicius et al. 2018, Mixed Precision Training.
    """

    def __init__(self) -> None:
        self.scale = FIRST_SCALE
        self.calm = 0

    def unscale(self, gradients: list[torch.Tensor], norm: torch.Tensor) -> bool:
        """Divide the gradients by the scale; false, and a smaller scale, when their norm is not finite.

        Cost: waits for the device once a step.
        """
        if not norm.isfinite().item():
            self.scale, self.calm = max(1.0, self.scale / 2), 0
            return False
        torch._foreach_mul_(gradients, 1 / self.scale)
        self.calm += 1
        if self.calm == GROWTH_STEPS:
            self.scale, self.calm = self.scale * 2, 0
        return True

    def state_dict(self) -> dict[str, float]:
        """The state for a checkpoint."""
        return {"scale": self.scale, "calm": self.calm}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Go on from there."""
        self.scale, self.calm = state_dict["scale"], int(state_dict["calm"])


def make_scaler(train: Train) -> LossScaler | None:
    """A scaler where the precision needs one."""
    return LossScaler() if train.precision == "fp16" else None


def is_batch_norm(module: nn.Module) -> bool:
    """True for layers whose statistics must stay in fp32."""
    return isinstance(module, BATCH_NORMS)
