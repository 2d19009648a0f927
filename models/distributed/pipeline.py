"""Pipeline parallelism: splits a net of blocks into stages and runs them with torch's schedules.

Each rank keeps the parameters of its own stages under their names in the whole net; all others become None. A batch is
split into equal micro-batches, because stages agree on shapes only once. The last micro-batch is padded with copies of
the last example, which do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed import pipelining

from models.distributed.mesh import Mesh
from models.distributed.order import share
from models.errors import UsageError, UserCodeError
from models.nets.splitting import BlockStackView

Inputs = dict[str, torch.Tensor]
# Returns the loss summed over a slice of the batch, from the outputs of these examples.
Criterion = Callable[[torch.Tensor, slice], torch.Tensor]
Precision = Callable[[], AbstractContextManager[Any]]


class PipelineStage(nn.Module):
    """Consecutive blocks of a net; the first stage begins with `enter`, the last ends with `leave`."""

    def __init__(self, net: nn.Module, bounds: tuple[int, int], ends: tuple[bool, bool], precision: Precision) -> None:
        super().__init__()
        self.net = net
        self.bounds = bounds
        self.is_first, self.is_last = ends
        self.precision = precision

    def forward(self, *hidden: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        """Run the stage on the previous stage's output; the first stage runs on the net's inputs."""
        stack = BlockStackView.of(self.net)
        assert stack is not None
        with self.precision():
            tensor = stack.enter(**inputs) if self.is_first else hidden[0]
            for block in stack.blocks[slice(*self.bounds)]:
                tensor = block(tensor)
            return stack.leave(tensor) if self.is_last else tensor


@dataclass
class Pipeline:
    """The stage of this rank and the schedules that run it, one for each micro-batch size and mode.

    Attributes:
        stage: The stage, wrapped for data parallelism if the plan has it.
        index: The number of the stage.
        hidden: Shape, without the batch, and type of the tensor between stages.
        output: Shape, without the batch, and type of the net's output.
    """

    kind: str
    mesh: Mesh
    device: torch.device
    stage: PipelineStage
    index: int
    hidden: tuple[torch.Size, torch.dtype]
    output: tuple[torch.Size, torch.dtype]
    _schedules: dict[tuple[int, bool], Any] = field(default_factory=dict)
    _criterion: Criterion | None = None
    _scale: torch.Tensor | None = None
    _sums: list[torch.Tensor] = field(default_factory=list)
    _count: int = 0

    @property
    def has_last(self) -> bool:
        """Whether this rank has the last stage, which returns the output."""
        return self.index == self.mesh.layout.pipeline - 1

    def backward(self, inputs: Inputs, criterion: Criterion, scale: torch.Tensor) -> torch.Tensor:
        """Add the gradients of `scale` x the summed loss; return the sum on the rank of the last stage, else zero."""
        count = len(next(iter(inputs.values())))
        self._criterion, self._scale, self._sums = criterion, scale, []
        schedule, fed, rows = self._prepare(inputs, count, train=True)
        losses: list[torch.Tensor] = []
        self._count = count
        target = {"target": rows, "losses": losses} if self.has_last else {}
        schedule.step(**fed, **target, return_outputs=False)
        self._criterion = self._scale = None
        return torch.stack(self._sums).sum() if self._sums else torch.zeros((), device=self.device)

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> torch.Tensor:
        """Return the net's output on the rank of the last stage, zeros on the others."""
        count = len(next(iter(inputs.values())))
        schedule, fed, _ = self._prepare(inputs, count, train=False)
        output = schedule.step(**fed)
        if not self.has_last:
            shape, dtype = self.output
            return torch.zeros((count, *shape), dtype=dtype, device=self.device)
        return output[:count]  # type: ignore[no-any-return]

    def _prepare(self, inputs: Inputs, count: int, train: bool) -> tuple[Any, Inputs, torch.Tensor]:
        pieces = self.mesh.layout.microbatches
        size = -(-count // pieces)
        if (size, train) not in self._schedules:
            self._schedules[size, train] = self._schedule(size, train)
        rows = torch.arange(size * pieces)
        fed: Inputs = {}
        if self.index == 0:  # the first stage takes the inputs
            indices = rows.clamp(max=count - 1).to(self.device)
            fed = {name: tensor.index_select(0, indices) for name, tensor in inputs.items()}
        return self._schedules[size, train], fed, rows

    def _schedule(self, size: int, train: bool) -> Any:
        def example(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty((size, *shape), dtype=dtype, device=self.device, requires_grad=train)

        stage = pipelining.PipelineStage(
            self.stage,
            self.index,
            self.mesh.layout.pipeline,
            self.device,
            input_args=() if self.index == 0 else (example(*self.hidden),),
            output_args=(example(*(self.output if self.has_last else self.hidden)),),
            group=self.mesh.group("pipeline"),
        )
        kind = pipelining.Schedule1F1B if self.kind == "1f1b" and train else pipelining.ScheduleGPipe
        return kind(stage, self.mesh.layout.microbatches, self._loss if train else None, scale_grads=False)

    def _loss(self, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        assert self._criterion is not None
        assert self._scale is not None
        start, stop = int(rows[0]), min(int(rows[-1]) + 1, self._count)
        if stop <= start:
            return output.float().sum() * 0
        value = self._criterion(output[: stop - start], slice(start, stop))
        self._sums.append(value.detach())
        return value * self._scale


def cut(net: nn.Module, kind: str, mesh: Mesh, rank: int, example: Inputs, precision: Precision) -> Pipeline:
    """Split `net` into stages and return the pipeline of this rank; parameters of other ranks become None in `net`.

    Args:
        net: The whole net on its device.
        kind: The schedule's name in the spec.
        mesh: The ranks.
        rank: This rank.
        example: Inputs of a few examples, for the shapes.
        precision: Returns the context of a forward pass.

    Raises:
        UsageError: The net does not define its blocks, or has too few.
        UserCodeError: The net's methods describe its blocks wrongly.
    """
    stack = BlockStackView.of(net)
    if stack is None:
        raise UsageError(
            f"train.parallel: pp needs a net with blocks(), enter() and leave() (models/nets/splitting.py), which "
            f"{type(net).__name__} has not: add them, or take ddp or fsdp"
        )
    count, blocks = mesh.layout.pipeline, len(stack.blocks)
    if blocks < count and not (count == 2 and blocks):
        raise UsageError(
            f"train.stages: {count} stages of a net with {blocks} block(s), expected at least one block a stage: give "
            "model.arguments more layers, or take fewer ranks"
        )
    hidden, output = _shapes(net, stack, example, precision)
    owners = _owners(net.eval(), stack, example)
    net.train()
    index = mesh.layout.place(rank)["pipeline"]
    bounds, ends = share(0, blocks, index, count), (index == 0, index == count - 1)
    names: set[str | int] = {*range(*bounds), *(["enter"] if ends[0] else []), *(["leave"] if ends[1] else [])}
    _keep(net, owners, names)
    device = next(iter(example.values())).device
    return Pipeline(kind, mesh, device, PipelineStage(net, bounds, ends, precision), index, hidden, output)


def _shapes(
    net: nn.Module, stack: BlockStackView, example: Inputs, precision: Precision
) -> tuple[tuple[torch.Size, torch.dtype], tuple[torch.Size, torch.dtype]]:
    net.eval()
    with torch.no_grad(), precision():
        expected = net(**example)
        first = tensor = stack.enter(**example)
        for block in stack.blocks:
            tensor = block(tensor)
            if tensor.shape != first.shape or tensor.dtype != first.dtype:
                raise UserCodeError(
                    f"{type(net).__name__}.blocks(): a block made {tuple(tensor.shape)} {tensor.dtype} of "
                    f"{tuple(first.shape)} {first.dtype}, expected the same: blocks must be equal"
                )
        output = stack.leave(tensor)
    net.train()
    if not torch.equal(output, expected):
        raise UserCodeError(
            f"{type(net).__name__}: leave(blocks(enter(inputs))) differs from forward(inputs): expected the same"
        )
    return (first.shape[1:], first.dtype), (output.shape[1:], output.dtype)


def _owners(net: nn.Module, stack: BlockStackView, example: Inputs) -> dict[str, set[str | int]]:
    """Map each parameter and buffer to its users: `enter`, `leave`, or a block number; both ends if none is found.

    Raises:
        UserCodeError: A parameter has two users, so that no stage could hold it alone.
    """
    with torch.no_grad():
        hidden = stack.enter(**example)
    used = {"enter": _used(net, lambda: stack.enter(**example)), "leave": _used(net, lambda: stack.leave(hidden))}
    owners: dict[str, set[str | int]] = {}
    inside = {id(t): i for i, block in enumerate(stack.blocks) for t in [*block.parameters(), *block.buffers()]}
    for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
        places: set[str | int] = {end for end, tensors in used.items() if id(tensor) in tensors}
        places |= {inside[id(tensor)]} if id(tensor) in inside else set()
        if len(places) > 1 and isinstance(tensor, nn.Parameter):
            raise UserCodeError(
                f"{type(net).__name__}: {name} is used in {len(places)} places ({', '.join(map(str, places))}), "
                "expected one, since each stage of a pipeline holds its own: untie it, or take fsdp"
            )
        owners[name] = places or {"enter", "leave"}
    return owners


def _used(net: nn.Module, run: Callable[[], torch.Tensor]) -> set[int]:
    """Return the ids of the tensors that `run` uses: in modules that it calls, or in its gradient graph."""
    used: set[int] = set()

    def note(module: nn.Module, _: Any) -> None:
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        used.update(id(tensor) for tensor in tensors)

    handles = [module.register_forward_pre_hook(note) for module in net.modules()]
    try:
        output = run()
    finally:
        for handle in handles:
            handle.remove()
    ahead, seen = [output.grad_fn], set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        used.add(id(getattr(node, "variable", None)))
        ahead += [function for function, _ in node.next_functions]
    return used


def own_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Parameters and buffers of a module by name, without those of its children."""
    parameters = module.named_parameters(recurse=False, remove_duplicate=False)
    return [*parameters, *module.named_buffers(recurse=False, remove_duplicate=False)]


def _keep(part: nn.Module, owners: dict[str, set[str | int]], names: set[str | int]) -> None:
    for path, module in part.named_modules():
        prefix = f"{path}." if path else ""
        for name, _ in own_tensors(module):
            if not owners[prefix + name] & names:
                setattr(module, name, None)
