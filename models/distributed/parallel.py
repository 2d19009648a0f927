"""One net on many ranks: applies the spec's parallel plan, and hides the differences of the plans behind one type.

All plans start from the same weights. With fsdp and hsdp a rank gives memory only to its own shards, if the net can be
built without memory (`models/nets/deferred.py`); with other plans each rank builds the whole net and then splits it.

What several ranks alone need is imported where they need it: torch's DTensors, FSDP and pipelines, with sympy and the
compiler behind them, cost 1.7 s of CPU.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from models.distributed.mesh import Mesh
from models.distributed.precision import BATCH_NORMS, autocast, check_precision, sharding_policy
from models.distributed.recompute import prepare_blocks
from models.distributed.world import World
from models.errors import UsageError
from models.nets.splitting import BlockStackView, Style, tensor_plan
from models.project_spec.blocks import Train

if TYPE_CHECKING:
    from models.distributed.pipeline import Criterion, Inputs, Pipeline

# Runs one discarded step on a few examples with a given module; see `_distributed`.
Warmup = Callable[[nn.Module], None]


@dataclass
class ParallelizedNet:
    """A net ready to train on this rank.

    Attributes:
        mesh: The ranks.
        net: The net with this rank's parameters, whole or in parts, by their names in the original net.
        module: The module to call in training: `net`, or DDP around it. A pipeline does not use it.
        num_parameters: Number of parameters of the whole net.
        copies_outputs: Whether `outputs` returns copies, because the next call writes into the memory of this one.
    """

    train: Train
    mesh: Mesh
    device: torch.device
    net: nn.Module
    module: nn.Module
    num_parameters: int
    pipeline: Pipeline | None = None
    copies_outputs: bool = False

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Return the autocast context of a forward pass."""
        return autocast(self.train, self.device)

    def backward(
        self, inputs: Inputs, criterion: Criterion, scale: torch.Tensor, more_follow: bool = False
    ) -> torch.Tensor:
        """Add the gradients of `scale` x the loss summed over the batch; return that sum, detached.

        Args:
            inputs: The net's inputs by name.
            criterion: Returns the summed loss of a slice of the examples from their outputs.
            scale: A scalar tensor.
            more_follow: True if more batches add to the same gradients, which ranks exchange after the last batch.
        """
        if self.pipeline is not None:
            return self.pipeline.backward(inputs, criterion, scale)
        with self._unsynced(more_follow):
            with self.precision():
                value = criterion(self.module(**inputs), slice(None))
            # The bits of `value.backward(gradient=scale)`, for which torch imports sympy.
            (value * scale).backward()  # type: ignore[no-untyped-call]
        return value.detach()

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> torch.Tensor:
        """Return the net's outputs; zeros on ranks without the last stage. All ranks must call it equally often."""
        if self.pipeline is not None:
            return self.pipeline.outputs(inputs).float()
        with self.precision():
            output: torch.Tensor = self.net(**inputs)
        return output.to(torch.float32, copy=self.copies_outputs)

    def learn(self, on: bool) -> None:
        """Switch dropout and running statistics to training mode or to evaluation mode."""
        self.net.train(on)

    def settle(self) -> None:
        """Release whole weights that were gathered from parts, because the values of the parts have changed."""
        if self.mesh.whole is None:
            return
        from torch.distributed.fsdp import FSDPModule

        root = self.pipeline.stage if self.pipeline is not None else self.net
        for module in root.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def spread_buffers(self) -> None:
        """Broadcast the buffers of the first data rank to all ranks: only its statistics are used and saved."""
        for buffer in self.net.buffers():
            for name in ("shard", "replicate", "tensor"):
                group = self.mesh.group(name)
                if group is not None:
                    torch.distributed.broadcast(buffer, group_src=0, group=group)

    def describe(self) -> dict[str, Any]:
        """Return the settings that decide the bits, for the record of the run."""
        train, layout = self.train, self.mesh.layout
        pipelined = {"schedule": train.pipeline, "microbatches": layout.microbatches} if self.pipeline else {}
        return {
            "parallel": layout.plan,
            "mesh": self.mesh.describe(),
            **pipelined,
            "precision": train.precision,
            "recompute": train.recompute,
            "gradient_hook": train.gradient_hook,
            "shard_optimiser": train.shard_optimiser,
        }

    @contextlib.contextmanager
    def _unsynced(self, more_follow: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202
        if isinstance(self.module, DistributedDataParallel):
            with self.module.no_sync() if more_follow else contextlib.nullcontext():
                yield
            return
        if self.mesh.has("shard") or self.mesh.has("replicate"):
            module: Any = self.module  # `_divide` has wrapped it
            module.set_requires_gradient_sync(not more_follow)
        yield


def make_plan(net: nn.Module, train: Train, world: World, example: Inputs, rehearse: Warmup) -> ParallelizedNet:
    """Split, wrap and prepare a whole net for this rank. Every rank must call it with equal weights.

    Args:
        net: The whole net, on this rank's device; on the meta device if `builds_in_shards`.
        train: The spec's `train` block.
        world: The ranks, arranged by their layout.
        example: Inputs of two examples, for the shapes.
        rehearse: Runs one discarded step with a module, on this rank alone or on all ranks.

    Raises:
        UsageError: The net cannot be split in this way, or the device does not support the precision.
        UserCodeError: The net's methods describe its parts wrongly.
    """
    check_precision(train, world.device)
    mesh = Mesh.of(world.layout, world.device)
    num_parameters = sum(parameter.numel() for parameter in net.parameters())
    plan = ParallelizedNet(train, mesh, world.device, net, net, num_parameters)
    if mesh.has("tensor"):
        _share_layers(net, mesh)
    if mesh.has("pipeline"):
        from models.distributed.pipeline import cut

        precision = functools.partial(autocast, train, world.device)
        plan.pipeline = cut(net, train.pipeline, mesh, world.rank, example, precision)
    prepare_blocks(net, train)
    if plan.pipeline is not None:
        _divide(plan.pipeline.stage, net, mesh, train)
    elif world.layout.plan == "ddp":
        plan.module = _distributed(net, train, world, rehearse)
    else:
        _divide(net, net, mesh, train)
    return plan


def builds_in_shards(world: World) -> bool:
    """Return whether each rank needs memory only for its shards of a net on the meta device, which are filled later."""
    return world.size > 1 and world.layout.plan in ("fsdp", "hsdp")


def _share_layers(net: nn.Module, mesh: Mesh) -> None:
    """Apply tensor parallelism: linear layers become DTensors over the ranks that share them."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

    plan, ranks = tensor_plan(net), mesh.layout.tensor
    if plan is None or not plan[0]:
        raise UsageError(
            f"train.parallel: tp needs a net with tensor_plan() and tensor_parts() (models/nets/splitting.py), which "
            f"{type(net).__name__} has not, or whose plan is empty: add them, or take ddp or fsdp"
        )
    styles, parts = plan
    if parts % ranks:
        fitting = ", ".join(str(n) for n in range(2, parts + 1) if parts % n == 0)
        raise UsageError(
            f"train.tensor: {ranks} ranks cannot share {type(net).__name__}, whose tensor_parts() (heads, or width) is "
            f"{parts}: expected one of {fitting or 'none: take ddp or fsdp'}"
        )
    style_makers: dict[Style, Callable[[], ParallelStyle]] = {
        "column": ColwiseParallel,
        "row": RowwiseParallel,
        "gathered": functools.partial(ColwiseParallel, output_layouts=Replicate()),
    }
    parallelize_module(net, mesh.view("tensor"), {path: style_makers[style]() for path, style in styles.items()})


def _divide(root: nn.Module, net: nn.Module, mesh: Mesh, train: Train) -> None:
    """Apply FSDP, HSDP, or replication beside another plan: each block is a unit, and the rest is one unit."""
    if not (mesh.has("shard") or mesh.has("replicate")):
        return
    from torch.distributed._composable.replicate_with_fsdp import replicate
    from torch.distributed.fsdp import fully_shard

    wrap: Callable[..., Any] = fully_shard if mesh.has("shard") else replicate
    view = mesh.view("replicate", "shard")
    # This warning comes for every net that ends in a linear layer over positions; no loss changes an output in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    policy = sharding_policy(train, torch.device(view.device_type))
    for parameter in net.parameters():
        if not parameter.is_contiguous():  # channels-last; shards need flat memory
            parameter.data = parameter.data.contiguous()
    stack = BlockStackView.of(net)
    units = [module for module in net.modules() if isinstance(module, BATCH_NORMS)] if policy.param_dtype else []
    for module in units:
        if any(True for _ in module.parameters()):
            wrap(module, mesh=view)
    for block in stack.blocks if stack else []:
        if any(True for _ in block.parameters()):
            wrap(block, mesh=view, mp_policy=policy)
    wrap(root, mesh=view, mp_policy=policy)


def _distributed(net: nn.Module, train: Train, world: World, rehearse: Warmup) -> nn.Module:
    """Wrap the net in DDP and run two discarded passes, after which DDP no longer rearranges its buckets.

    DDP sorts its gradient buckets anew after the first backward pass. This changes the order of sums, and so the bits,
    on three or more ranks: without the two passes a resumed job would differ from one that was never killed.
    """
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    rehearse(net)
    unused = any(p.requires_grad and p.grad is None for p in net.parameters())
    net.zero_grad(set_to_none=True)
    module = DistributedDataParallel(
        net,
        device_ids=[world.device] if world.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=unused,
    )
    for _ in range(2):
        rehearse(module)
        net.zero_grad(set_to_none=True)
    with torch.no_grad():
        for name, buffer in net.named_buffers():
            buffer.copy_(buffers[name])
    _add_hook(module, train)
    return module


def _add_hook(module: DistributedDataParallel, train: Train) -> None:
    if train.gradient_hook == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        module.register_comm_hook(None, fp16_compress_hook)
