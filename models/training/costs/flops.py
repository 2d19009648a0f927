"""Floating-point operations of a net, counted from the operations that it runs rather than from its parameters."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

# Nets with up to so many parameters run for real, in a third of the time; larger ones run on the meta device.
_MOST_REAL = 20_000_000


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up torch's own formulas for the operations that have one.

    torch's FlopCounterMode also keeps a table by module and is 2.5 times as slow, measured.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


_Counter.__torch_dispatch__ = inspect.unwrap(_Counter.__torch_dispatch__)  # type: ignore[method-assign]


def count_flops(net: nn.Module, inputs: Mapping[str, torch.Tensor]) -> float | None:
    """Count the FLOPs of one example, forward and backward: only matrix products, convolutions and attention.

    The net does not change and keeps no gradient; torch's generator may advance.

    Args:
        net: As built, not yet sharded; its weights may be on the meta device.
        inputs: A few examples by the argument names of forward, (example, ...).

    Returns:
        The FLOPs; None for a net whose forward or backward pass fails here.

    Source: torch.utils.flop_counter's formulas. Attention counts as its two products and their gradients, without the
        parts that a kernel computes twice. Recomputation does not count either, as MFU requires (Chowdhery et al.
        2022).
    """
    count = len(next(iter(inputs.values())))
    weights = list(net.parameters())
    if sum(p.numel() for p in weights) > _MOST_REAL or any(p.is_meta for p in weights):
        net, inputs = empty_copy(net, "meta"), {name: value.to("meta") for name, value in inputs.items()}
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    try:
        with _plain_kernels(net), _Counter() as counter:
            net(**inputs).float().sum().backward()
    except Exception:  # noqa: BLE001  a user's net may raise anything; it trains with an unknown cost
        return None
    finally:
        net.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in net.named_buffers():
                buffer.copy_(buffers[name])
    return float(counter.total / count)


def empty_copy(net: nn.Module, device: str) -> nn.Module:
    """Return a copy of the net with uninitialised weights: without bytes on `meta` and under `FakeTensorMode`."""
    memo: dict[int, Any] = {}
    for parameter in net.parameters():
        empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
        memo[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
    for buffer in net.buffers():
        memo[id(buffer)] = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)
    return copy.deepcopy(net, memo)


@contextlib.contextmanager
def _plain_kernels(net: nn.Module) -> Iterator[None]:
    """Run attention as matrix products, and an LSTM on a CPU step by step, since oneDNN's LSTM layer has no formula."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if any(isinstance(module, nn.LSTM) for module in net.modules()):
            stack.enter_context(warnings.catch_warnings(action="ignore"))
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        yield
