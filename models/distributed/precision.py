"""Precision: autocast as the spec says, and the loss scaling that fp16 needs."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

from models.errors import UsageError
from models.project_spec.blocks import Precision, Train

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Layers with statistics that must stay in fp32.
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# Source: torch.amp.GradScaler's defaults.
FIRST_SCALE, GROWTH_STEPS = 2.0**16, 2000


def precision_for(device: torch.device) -> tuple[Precision, str]:
    """Return the precision of a training on `device` for which the spec says `auto`, and the reason.

    Measured: on one H100 bf16 was 5.8 times as fast as fp32 with exact products, and as good. On a CPU the gain depends
    on its kind, and is small for small nets: docs/decisions/0034-on-a-gpu.md.
    """
    if device.type != "cuda":
        return "fp32", "on a CPU"
    name = torch.cuda.get_device_name(device)
    with torch.cuda.device(device):
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return ("bf16", f"{name} computes it") if has_bf16 else ("fp16", f"{name} has no bf16")


def set_products(precision: Precision, device: torch.device) -> None:
    """Let the remaining fp32 products of a GPU run on its TF32 units, unless the precision is `fp32-exact`.

    Nothing is set for a CPU, whose libraries might round otherwise too.
    """
    if device.type != "cuda":
        return
    exact = precision == "fp32-exact"
    torch.set_float32_matmul_precision("highest" if exact else "high")
    torch.backends.cudnn.allow_tf32 = not exact


def check_precision(train: Train, device: torch.device) -> None:
    """Reject a precision that this device does not support, or supports only very slowly.

    Raises:
        UsageError: The precision is rejected; the message names the reason and an alternative.
    """
    if train.precision == "fp16" and device.type == "cpu":
        raise UsageError(
            "train.precision: got fp16 on a CPU, where it runs at a hundredth of the speed of fp32: take bf16 or fp32"
        )


def autocast(train: Train, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return the context of a forward pass: products in the spec's precision, sums and norms in fp32."""
    if train.precision in _TYPES:
        return torch.autocast(device.type, dtype=_TYPES[train.precision])
    return contextlib.nullcontext()


def sharding_policy(train: Train, device: torch.device) -> Any:
    """Return the types of sharded parameters in transit: on a GPU the products' type, with gradient sums in fp32.

    On a CPU all are fp32: autocast casts the inputs of a norm only on a GPU, and a norm accepts no mixed types.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if train.precision not in _TYPES or device.type == "cpu":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=_TYPES[train.precision], reduce_dtype=torch.float32, cast_forward_inputs=False
    )


class LossScaler:
    """A factor on the loss against underflow of fp16 gradients: halved on overflow, doubled after a time without one.

    torch.amp.GradScaler supports neither pipeline stages nor plans whose ranks hold different shards. This scaler uses
    the joint norm, which is the same on all ranks.
    Source: Micikevicius et al. 2018, Mixed Precision Training.
    """

    def __init__(self) -> None:
        self.scale = FIRST_SCALE
        self.calm = 0

    def unscale(self, gradients: list[torch.Tensor], norm: torch.Tensor) -> bool:
        """Divide the gradients by the scale; if their norm is not finite, halve the scale and return false.

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
        """Return the state for a checkpoint."""
        return {"scale": self.scale, "calm": self.calm}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Restore the state from a checkpoint."""
        self.scale, self.calm = state_dict["scale"], int(state_dict["calm"])
