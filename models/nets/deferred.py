"""Nets whose constructors run on the meta device, without memory: their initial values are drawn where they will live.

The constructor's operations on each parameter are recorded and run again later, with a generator of its own for each
parameter, seeded by its name. So the values depend neither on the device, nor on the ranks, nor on other layers, and a
rank that holds a shard draws the same numbers as one that holds the whole.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from models.errors import UserCodeError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_aten = torch.ops.aten
_RANDOM = (_aten.normal_.default, _aten.uniform_.default)
_DRAWN = (_aten.randn.default, _aten.rand.default)
# Parameters of a net without memory that is tried out with memory: for its first operation on the meta device torch
# imports its compiler, 1.3 s of CPU.
_MOST_REAL = 2_000_000
# Operations that set all values of a tensor, whatever they were.
_SETTING = (*_RANDOM, _aten.zero_.default, _aten.fill_.Scalar)
# Operations that make a tensor with set values: as an operation on an empty one, from the arguments.
_MAKING: dict[Any, Callable[[tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]] = {
    _aten.zeros.default: lambda _: (_aten.zero_.default, ()),
    _aten.ones.default: lambda _: (_aten.fill_.Scalar, (1.0,)),
    _aten.full.default: lambda arguments: (_aten.fill_.Scalar, (arguments[1],)),
    _aten.randn.default: lambda _: (_aten.normal_.default, (0.0, 1.0)),
    _aten.rand.default: lambda _: (_aten.uniform_.default, (0.0, 1.0)),
}
# Copies of a tensor with the same values, in other memory or in another layout.
_COPYING = ("aten::_to_copy", "aten::clone")
_SCALING = {_aten.mul.Tensor: _aten.mul_.Tensor, _aten.add.Tensor: _aten.add_.Tensor}


class Operation(NamedTuple):
    """An operation in place, and its arguments after the tensor."""

    operator: Any
    arguments: tuple[Any, ...]


Recipe = tuple[Operation, ...]


class InitRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records, for each tensor, the operations that set its values. What is not recorded has no recipe."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recipes: dict[int, Recipe] = {}
        self._alive: list[torch.UntypedStorage] = []  # a freed storage's number could come again

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first: Any = args[0] if args else None
        # Nothing is drawn on the meta device, but torch would import its compiler for it.
        if func in _RANDOM and first.device.type == "meta":
            out = first
        elif func in _DRAWN and (kwargs or {}).get("device") == torch.device("meta"):
            out = _aten.empty.memory_format(*args, **(kwargs or {}))
        elif func in _SCALING and first.is_meta and first.is_contiguous() and _is_scaled(first, args[1]):
            out = _empty(first, first.device)
        else:
            out = func(*args, **(kwargs or {}))
        if func in _MAKING:
            self._set(out, (Operation(*_MAKING[func](args)),))
        elif func.name() in _COPYING:
            self._set(out, self.recipe(args[0]))
        elif func in _SCALING and all(isinstance(argument, int | float) for argument in args[1:]):
            before = self.recipe(args[0])
            self._set(out, before and (*before, Operation(_SCALING[func], tuple(args[1:]))))
        elif func.name().partition(".")[0].endswith("_") and isinstance(first, torch.Tensor):
            self._changed(func, first, tuple(args[1:]))
        return out

    def recipe(self, tensor: torch.Tensor) -> Recipe | None:
        """Return the operations that set the values of a tensor; None if its values were computed otherwise."""
        return self._recipes.get(_number(tensor))

    def forget(self, tensor: torch.Tensor) -> None:
        """Forget the recipe of a tensor, until all its values are set anew."""
        self._recipes.pop(_number(tensor), None)

    def _changed(self, func: Any, tensor: torch.Tensor, arguments: tuple[Any, ...]) -> None:
        before = self.recipe(tensor)
        is_whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        is_plain = not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(arguments))
        if is_whole and is_plain and func in _SETTING:
            self._set(tensor, (Operation(func, arguments),))
        elif is_whole and is_plain and before:
            self._set(tensor, (*before, Operation(func, arguments)))
        else:
            self.forget(tensor)

    def _set(self, tensor: torch.Tensor, recipe: Recipe | None) -> None:
        self._alive.append(tensor.untyped_storage())
        if recipe is None:
            self.forget(tensor)
        else:
            self._recipes[_number(tensor)] = recipe


# Torch wraps the method of such a mode for `torch.compile`, and the wrapper's first call imports the compiler.
InitRecorder.__torch_dispatch__ = inspect.unwrap(InitRecorder.__torch_dispatch__)  # type: ignore[method-assign]


class _MetaQuestions(TorchFunctionMode):
    """Forgets the recipe of a tensor whose constructor asks whether it is on the meta device: it then does otherwise.

    So does `torch.nn.init.trunc_normal_`, which leaves such a tensor as it is.
    """

    def __init__(self, recorder: InitRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.is_meta.__get__:  # type: ignore[attr-defined]
            self._recorder.forget(args[0])
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class NetDraft:
    """A net, and the recipe of each parameter and buffer by name; `recipes` is None for a net with its values."""

    net: nn.Module
    recipes: dict[str, Recipe] | None = None

    @property
    def is_deferred(self) -> bool:
        """Whether the net is on the meta device until `fill`."""
        return self.recipes is not None

    def fill(self, device: torch.device, seed: Callable[[str], int], threads: int = 1) -> None:
        """Give a net on the meta device its memory on `device` and its initial values; others only move there.

        Parameters may be shards (FSDP): each rank then draws whole parameters, one at a time, and keeps its part.

        Args:
            device: Where the net will be trained.
            seed: Returns the seed of a parameter from its name in the net.
            threads: Parameters that are drawn at once; the values do not depend on it.
        """
        if self.recipes is None:
            self.net.to(device)
            return
        if any(is_spread(tensor) for _, tensor in _tensors(self.net)):
            self.net.to_empty(device=device)
        else:
            _allocate(self.net, device)

        def put(name: str, tensor: torch.Tensor) -> None:
            assert self.recipes is not None
            _put(tensor, _drawn(self.recipes[name], tensor, seed(name)))

        tensors = dict(_tensors(self.net))
        whole = [name_and_tensor for name_and_tensor in tensors.items() if not is_spread(name_and_tensor[1])]
        with ThreadPoolExecutor(max(1, threads)) as pool:
            for future in [pool.submit(put, *name_and_tensor) for name_and_tensor in whole]:
                future.result()
        for name, tensor in tensors.items():
            if is_spread(tensor):
                put(name, tensor)


def draft(build: Callable[[], nn.Module], *, is_required: bool, name: str) -> NetDraft:
    """Build a net on the meta device if all its values can be drawn later, else as it is.

    Args:
        build: Builds the net.
        is_required: The net says that it can be built so, and it is an error if not.
        name: The net's name, for the message.

    Raises:
        UserCodeError: The values of a parameter or a buffer are computed in another way.
    """
    with torch.device("meta"), InitRecorder() as recorder, _MetaQuestions(recorder):
        net = build()
    recipes = {key: recorder.recipe(tensor) for key, tensor in _tensors(net)}
    lacking = [key for key, recipe in recipes.items() if recipe is None] + _aliases(net)
    if not lacking:
        return NetDraft(net, {key: recipe for key, recipe in recipes.items() if recipe is not None})
    if is_required:
        raise UserCodeError(
            f"{name}: build_on_meta is set, but the values of {lacking[0]} are not set as a whole by torch.nn.init, "
            "zeros, ones or randn, or it is tied to another: set them so, or remove build_on_meta"
        )
    return NetDraft(build())


def _tensors(net: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from net.named_parameters()
    yield from net.named_buffers()


def _aliases(net: nn.Module) -> list[str]:
    everything = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    return sorted({*everything} - {name for name, _ in net.named_parameters()})


def _is_scaled(tensor: torch.Tensor, factor: Any) -> bool:
    return tensor.is_floating_point() and isinstance(factor, int | float)


def is_spread(tensor: Any) -> TypeGuard[DTensor]:
    """Return whether the tensor is a DTensor, of which this rank holds a part or a copy."""
    return hasattr(tensor, "device_mesh")


def _number(tensor: torch.Tensor) -> int:
    return int(StorageWeakRef(tensor.untyped_storage()).cdata)  # type: ignore[no-untyped-call]


def _drawn(recipe: Recipe, like: torch.Tensor, seed: int) -> torch.Tensor:
    """Return the values on the CPU: its generator gives the same numbers for every device."""
    values = torch.empty(like.shape, dtype=like.dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for operator, arguments in recipe:
            extra_arguments = {"generator": generator} if operator in _RANDOM else {}
            operator(values, *arguments, **extra_arguments)
    return values


def with_memory(net: nn.Module) -> nn.Module:
    """Return the net, or a copy of zeros of a small one that is on the meta device."""
    weights = [*net.parameters(), *net.buffers()]
    if not all(tensor.is_meta for tensor in weights) or sum(tensor.numel() for tensor in weights) > _MOST_REAL:
        return net
    trial = copy.deepcopy(net)
    _allocate(trial, torch.device("cpu"))
    with torch.no_grad():
        for tensor in (*trial.parameters(), *trial.buffers()):
            tensor.zero_()
    return trial


def _allocate(net: nn.Module, device: torch.device) -> None:
    """Give a net on the meta device memory, without values.

    As `nn.Module.to_empty`, whose operation on a meta tensor imports sympy: half a second of CPU.
    """
    for module in net.modules():
        for name, parameter in [*module.named_parameters(recurse=False)]:
            setattr(module, name, nn.Parameter(_empty(parameter, device), parameter.requires_grad))
        for name, buffer in [*module.named_buffers(recurse=False)]:
            setattr(module, name, _empty(buffer, device))


def _empty(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


@torch.no_grad()
def _put(tensor: torch.Tensor, values: torch.Tensor) -> None:
    if is_spread(tensor):
        from torch.distributed.tensor import distribute_tensor

        values = values.to(tensor.to_local().device)
        # Each rank cuts its own part, without a message: all have drawn the same.
        values = distribute_tensor(values, tensor.device_mesh, tensor.placements, src_data_rank=None).to_local()
        tensor = tensor.to_local()
    tensor.copy_(values)
