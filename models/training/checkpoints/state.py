"""The state of a training, read from the live objects and restored with the same bits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import nn

from models.distributed.dtensor import local, part_of
from models.distributed.order import seed_of
from models.errors import UserCodeError
from models.nets.deferred import is_spread

if TYPE_CHECKING:
    from models.training.checkpoints.shards import StoredCheckpoint

Tensors = dict[str, torch.Tensor]
Scalars = dict[str, float]

# Parts of a name that the wrappers for compiling and recomputing add.
_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module")


class Checkpointable(Protocol):
    """Further state of a session for checkpoints: an average of the weights, a loss scaler."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a flat dict: live tensors (or DTensors), and numbers that are the same on every rank."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Restore the state; its tensors are filled in place before the call."""
        ...


@dataclass
class Progress:
    """The progress of a job: all state besides tensors. The position in the data follows from `step`.

    `best_*` is the chosen model so far, `goal_*` the best goal so far, which may be another model's
    (`model_choice.py`); `improved_*` is when either changed last. `spent` is the cost of the current epoch up to the
    checkpoint; empty at the start of an epoch.
    """

    step: int = 0
    epoch: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_value: float = float("nan")
    best_round: int = 0
    best_noise: float = 0.0
    best_log_loss: float = float("nan")
    goal_value: float = float("nan")
    goal_noise: float = 0.0
    improved_epoch: int = 0
    improved_round: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    drops: int = 0
    last_drop: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    resumed_from: list[int] = field(default_factory=list)
    # [first step, ranks, threads]: ranks and threads decide the bits.
    worlds: list[list[int]] = field(default_factory=list)


def seed_everything(*parts: int | str) -> None:
    """Seed the generators that nets may use: torch's on every device, NumPy's and Python's."""
    seed = seed_of(*parts)
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def take_random(device: torch.device) -> Tensors:
    """Return the state of this process's generators."""
    _, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, next_gauss = random.getstate()
    state = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.array([*keys, position, has_gauss], dtype=np.int64)),
        "numpy_gauss": torch.tensor(gauss, dtype=torch.float64),
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([] if next_gauss is None else [next_gauss], dtype=torch.float64),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def put_random(state: Tensors, device: torch.device) -> None:
    """Set this process's generators to a state from `take_random`."""
    torch.set_rng_state(state["torch"])
    *keys, position, has_gauss = state["numpy"].tolist()
    gauss = float(state["numpy_gauss"])
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    version, *words = state["python"].tolist()
    random.setstate((version, tuple(words), *(state["python_gauss"].tolist() or [None])))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def take_tensors(net: nn.Module, optimiser: torch.optim.Optimizer) -> tuple[Tensors, Scalars]:
    """Return this rank's weights, buffers and optimiser state, by their names in the net as it was built.

    The tensors are live, whole or a `DTensor`; tensors that share memory appear once, under the first name.
    """
    tensors, seen, scalars = {}, set(), Scalars()
    for name, tensor in net.state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            raise UserCodeError(f"state of {name}: got {type(tensor).__name__}, expected tensors: make it a buffer")
        key = (local(tensor).data_ptr(), tensor.shape) if tensor.numel() else name
        if key not in seen:
            seen.add(key)
            tensors[f"net/{plain_name(name)}"] = tensor
    inner = _inner(optimiser)
    for name, parameter in net.named_parameters():
        for key, value in inner.state.get(parameter, {}).items():
            path = f"optimiser/{plain_name(name)}/{key}"
            if isinstance(value, torch.Tensor):
                tensors[path] = value
            elif isinstance(value, bool | int | float):
                scalars[path] = value
    return tensors, scalars


def put_optimiser(stored: StoredCheckpoint, scalars: Scalars, net: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Restore the optimiser's state, written by any set of ranks.

    Restores only the state, never the optimiser's flags: a checkpoint must not turn `fused` off.

    Raises:
        StoreError: The checkpoint cannot be read.
    """
    inner, names = _inner(optimiser), {parameter: plain_name(name) for name, parameter in net.named_parameters()}
    places: Tensors = {}
    for group in inner.param_groups:
        moves = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            prefix = f"optimiser/{names[parameter]}/"
            state: dict[str, Any] = _under(prefix, scalars)
            for name in (name for name in stored.shapes if name.startswith(prefix)):
                key = name.removeprefix(prefix)
                device = torch.device("cpu") if key == "step" and not moves else parameter.device
                state[key] = places[name] = _place(parameter, stored.shapes[name], stored.types[name], device)
            if state:
                inner.state[parameter] = state
    stored.load(places)


def stage(tensors: Tensors) -> Tensors:
    """Return copies on the CPU, which no later step changes; a shard stays a shard."""
    return {name: _staged(tensor) for name, tensor in tensors.items()}


@torch.no_grad()
def _staged(tensor: torch.Tensor) -> torch.Tensor:
    if is_spread(tensor) and tensor.device.type == "cpu":
        return part_of(tensor, local(tensor).detach().clone())  # torch's own copy first works out how it is sharded
    return tensor.detach().to("cpu", copy=True)


def weights_of(net: nn.Module) -> Tensors:
    """Return this rank's weights and buffers, by their names in the net as it was built."""
    return {plain_name(name): tensor for name, tensor in net.state_dict().items()}


def take_extra(extra: dict[str, Checkpointable]) -> tuple[Tensors, Scalars]:
    """Return the further state in checkpoints: its tensors and its numbers."""
    values = {f"extra/{name}/{key}": value for name, part in extra.items() for key, value in part.state_dict().items()}
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    return tensors, {name: value for name, value in values.items() if name not in tensors}


def put_extra(stored: StoredCheckpoint, scalars: Scalars, extra: dict[str, Checkpointable]) -> None:
    """Restore the further state in checkpoints.

    Raises:
        StoreError: The checkpoint cannot be read, or holds other state.
    """
    for name, part in extra.items():
        state, prefix = part.state_dict(), f"extra/{name}/"
        stored.load({f"{prefix}{key}": value for key, value in state.items() if isinstance(value, torch.Tensor)})
        part.load_state_dict(state | _under(prefix, scalars))


def plain_name(name: str) -> str:
    """Return a parameter's name in the net as it was built, without the parts that wrappers add."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _inner(optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimiser that holds the state: for ZeRO, the inner one of this rank's parameters."""
    inner = getattr(optimiser, "optim", optimiser)
    assert isinstance(inner, torch.optim.Optimizer)
    return inner


def _place(parameter: torch.Tensor, shape: tuple[int, ...], kind: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return an empty tensor for a parameter's state; with the parameter's shape it has its layout and sharding too."""
    if shape == tuple(parameter.shape):
        return torch.empty_like(parameter, dtype=kind, device=device, requires_grad=False)
    return torch.empty(shape, dtype=kind, device=device)


def _under(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
