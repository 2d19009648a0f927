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
            block.forward = _recomputing(block, train.recompute)
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


def _recomputing(block: nn.Module, kind: str) -> Callable[..., Any]:
    """Return the block's forward, which is done again in the backward pass."""
    recomputed = functools.partial(checkpoint, use_reentrant=False)
    if kind != "full":
        contexts = functools.partial(create_selective_checkpoint_contexts, list(_saved_operators()))
        recomputed = functools.partial(recomputed, context_fn=contexts)
    forward = block.forward
    norms = [module for module in block.modules() if getattr(module, "track_running_stats", False)]
    if not norms:
        return functools.partial(recomputed, forward)

    def counted_once(*args: Any, **kwargs: Any) -> Any:
        compiled = torch.compiler.is_compiling()  # a compiled forward is traced once, with its updates
        return recomputed(forward if compiled else _CountedOnce(forward, norms), *args, **kwargs)

    return counted_once


class _CountedOnce:
    """A forward whose second call, to recompute, leaves the running statistics of batch norms as they are."""

    def __init__(self, forward: Callable[..., Any], norms: Sequence[nn.Module]) -> None:
        self._forward, self._is_done = forward, False
        buffers = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
        # Copied here, where no dispatch mode of a selective checkpoint takes the copy for a part of the forward.
        self._swaps = [(norm, name, buffer, buffer.clone()) for norm, name, buffer in buffers]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._is_done:
            self._is_done = True
            return self._forward(*args, **kwargs)
        for norm, name, _, spare in self._swaps:
            setattr(norm, name, spare)
        try:
            return self._forward(*args, **kwargs)
        finally:
            for norm, name, buffer, _ in self._swaps:
                setattr(norm, name, buffer)


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
