"""Activation checkpointing and compilation of each block."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from models.errors import UsageError
from models.nets.splitting import BlockStackView
from models.project_spec.blocks import Train


def prepare_blocks(net: nn.Module, train: Train) -> None:
    """Set up recomputation and compilation of the net's blocks as the spec says, without changing any name.

    Raises:
        UsageError: The spec sets recomputation, but the net does not define its blocks.
    """
    stack = BlockStackView.of(net)
    if train.recompute != "none":
        if stack is None:
            raise UsageError(
                f"train.recompute: got {train.recompute}, but {type(net).__name__} does not name its blocks: "
                "add blocks(), enter() and leave() (models/nets/splitting.py), or leave it out"
            )
        for block in stack.blocks:
            block.forward = _recomputing(block.forward, train.recompute)
    if train.compile is True:
        compile_blocks(net)


def compile_blocks(net: nn.Module, replays: bool = False) -> None:
    """Let the net's blocks, or a net without blocks, be compiled at their next call, without changing any name.

    Each shape of the inputs has its own code, and no code is chosen by its time: otherwise the bits would depend on the
    shapes that came first, and on the moment, and a resumed job would differ.

    Args:
        net: The net.
        replays: Replay the launches of a block as one graph (CUDA graphs). For nets whose step waits for launches.
    """
    stack = BlockStackView.of(net)
    options = {"deterministic": True, **({"triton.cudagraphs": True} if replays else {})}
    for module in stack.blocks if stack and len(stack.blocks) else [net]:
        if type(module).__module__.startswith("torch."):
            # torch compiles no frame of its own files, so a block that is a plain nn.Sequential would stay as it is.
            module.forward = functools.partial(_called, module.forward)
        module.compile(dynamic=False, options=options)


def _called(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return forward(*args, **kwargs)


def _recomputing(forward: Callable[..., Any], kind: str) -> Callable[..., Any]:
    if kind == "full":
        return functools.partial(checkpoint, forward, use_reentrant=False)
    contexts = functools.partial(create_selective_checkpoint_contexts, list(_saved_operators()))
    return functools.partial(checkpoint, forward, use_reentrant=False, context_fn=contexts)


def _saved_operators() -> Sequence[Any]:
    """Return the operators whose results are kept: matrix products, which cost the most to recompute."""
    aten = torch.ops.aten
    return (
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten.convolution.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
    )
