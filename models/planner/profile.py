"""Profiles a net from shapes alone: weights, bytes saved for the backward pass, FLOPs.

Source: checked against torch's MemTracker (tests/unit/models/planner/test_profile.py), within 5 %.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from models.distributed.precision import autocast
from models.distributed.recompute import prepare_blocks
from models.errors import UsageError, UserCodeError
from models.kinds.task import TASKS
from models.nets.build import draft_net, example_inputs
from models.nets.sizes import Sizes
from models.nets.splitting import BlockStackView, tensor_plan
from models.project_spec.blocks import Model, Precision, Train
from models.training.costs.flops import count_flops, empty_copy
from models.training.optimisation.chunked_loss import MANY_CLASSES, chunked_cross_entropy

Recompute = Literal["none", "full", "selective"]
_COUNTED = 2
# The blocks of a net are alike: only this many are traced, and the others count the same.
_TRACED = 2
# The traced micro-batches; values for others are on the line through them. The smaller one includes what does not grow
# with the batch: copies of weights in half precision.
_ANCHOR, _SMALL_ANCHOR = 256, 4
# glibc keeps smaller blocks in its heap, whose holes stay resident. Source: mallopt(3), M_MMAP_THRESHOLD, its maximum.
_LARGE_BYTES = 32 * 2**20
# What oneDNN's LSTM layer stores for each number of its output, which its shapes do not show. Measured with torch 2.13:
# 60 bytes in fp32 and 40 in bf16, for 6 to 50 positions.
_LSTM_BYTES = {torch.float32: 60, torch.bfloat16: 40}


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of parameters of one rank. For a net without blocks all are in `outside`.

    Attributes:
        outside: Parameters before and after the blocks, together.
        enter: At most this part of `outside` is before the blocks; the rest is after them.
        block: Parameters of the largest block.
        num_blocks: 0 for a net that does not define its blocks.
        buffers: Bytes of buffers.
    """

    outside: int
    enter: int
    block: int
    num_blocks: int
    buffers: int

    @property
    def total(self) -> int:
        """The number of all parameters of the rank."""
        return self.outside + self.block * self.num_blocks


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes of one micro-batch on one rank.

    Attributes:
        saved: Live bytes at the end of the forward pass.
        block: The part of `saved` of one block, on average.
        peak: Peak of live bytes in the forward and the backward pass, with weight gradients.
        apart: The same without weight gradients.
        hidden: Bytes of the tensor between two blocks.
        inputs: Bytes of the micro-batch's inputs.
        small: The part of `peak` in tensors so small that a CPU's allocator takes them from its heap.
    """

    saved: int
    block: int
    peak: int
    apart: int
    hidden: int
    inputs: int
    small: int

    @property
    def heap_share(self) -> float:
        """The share of the bytes that a CPU's allocator takes from its heap."""
        return self.small / max(1, self.peak)

    @property
    def transient(self) -> int:
        """The bytes that the backward pass needs in addition to `saved`."""
        return self.apart - self.saved


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations allocate, until they are freed; a view counts as part of its base.

    With fake tensors (`FakeTensorMode`), a net of any size takes no memory.

    Args:
        known: Tensors that do not count: weights, buffers, inputs.

    Attributes:
        now: Live bytes without weight gradients.
        gradients: Bytes of weight gradients, reported by `is_gradient`; they must outlive this count.
        peak: The peak of all live bytes.
        small_at_peak: The part of `peak` in tensors that a CPU's allocator takes from its heap.
        peak_without_gradients: The peak of `now`.
    """

    def __init__(self, outer_tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.gradients = 0
        self.peak = 0
        self.small_at_peak = 0
        self.peak_without_gradients = 0
        self._small = 0
        self._seen: set[int] = set()
        for tensor in outer_tensors:
            self._watch(tensor, count=False)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._watch(leaf, count=True)
        if func is torch.ops.aten.mkldnn_rnn_layer.default:
            self._count(out[3], out[0].numel() * _LSTM_BYTES.get(out[0].dtype, 0))
        if self.now + self.gradients > self.peak:
            self.peak, self.small_at_peak = self.now + self.gradients, self._small
        self.peak_without_gradients = max(self.peak_without_gradients, self.now)
        return out

    def is_gradient(self, tensor: torch.Tensor) -> None:
        """Count a tensor as a weight gradient from now on."""
        size = tensor.untyped_storage().nbytes()
        self.now -= size
        self.gradients += size

    def _watch(self, tensor: torch.Tensor, count: bool) -> None:
        storage = tensor.untyped_storage()
        key = StorageWeakRef(storage).cdata  # type: ignore[no-untyped-call]
        if key not in self._seen:
            self._seen.add(key)
            weakref.finalize(storage, self._seen.discard, key)
            self._count(tensor, storage.nbytes() if count else 0)

    def _count(self, tensor: torch.Tensor, size: int) -> None:
        """Count bytes for as long as the tensor's storage lives."""
        small = size if size < _LARGE_BYTES else 0
        self.now += size
        self._small += small
        weakref.finalize(tensor.untyped_storage(), self._gone, size, small)

    def _gone(self, size: int, small: int) -> None:
        self.now -= size
        self._small -= small


class Profiler:
    """Traces one net with any micro-batch, and with its layers shared by any number of ranks.

    Args:
        model: The spec's net.
        sizes: The sizes of the data.
        base: Folder of the spec.
        precision: As `train.precision`, resolved.
        flash: Attention never stores its matrix, as on GPUs, whose kernels support dropout.

    Raises:
        UserCodeError: The net cannot run on shapes alone.
    """

    def __init__(
        self, model: Model, sizes: Sizes, base: Path, precision: Precision = "fp32", flash: bool = False
    ) -> None:
        self._sizes = sizes
        self._precision = precision
        self._flash = flash
        with _saying_what_failed(model.net), torch.device("meta"):
            drafted = draft_net(model, sizes, base)
        self._net = drafted.net
        self.is_deferred = drafted.is_deferred
        """Whether ranks can build only their shards of the net."""
        self._narrowed = functools.cache(functools.partial(_narrowed, self._net))
        self._weighed = functools.cache(self._weigh)
        self._traced = functools.cache(self._trace)
        self._counted = functools.cache(lambda: count_flops(self._net, self._inputs(_COUNTED, "meta")))
        split = tensor_plan(self._net)
        self.tensor_parts = split[1] if split else 0
        """The number that the ranks sharing a layer must divide; 0 if layers cannot be shared."""
        self.num_blocks = self.weights().num_blocks

    def flops(self) -> float | None:
        """Return the FLOPs of one example, forward and backward, over all ranks."""
        return self._counted()

    def weights(self, tensor: int = 1) -> ParameterCounts:
        """Return the parameters of one of `tensor` ranks that share the layers."""
        return self._weighed(tensor)

    def _weigh(self, tensor: int) -> ParameterCounts:
        net, gathered = self._narrowed(tensor)
        stack = BlockStackView.of(net)
        blocks = list(stack.blocks) if stack else []
        total = sum(p.numel() for p in net.parameters()) - round(gathered * (1 - 1 / tensor))
        block = max((sum(p.numel() for p in block_of_layers.parameters()) for block_of_layers in blocks), default=0)
        inside = sum(p.numel() for block_of_layers in blocks for p in block_of_layers.parameters())
        shrink = total / max(1, sum(p.numel() for p in net.parameters()))
        enter = _used_by_enter(net, stack, self._inputs(_COUNTED, "meta")) if stack else 0
        return ParameterCounts(
            outside=total - round(inside * shrink),
            enter=round(enter * shrink),
            block=round(block * shrink),
            num_blocks=len(blocks),
            buffers=sum(b.numel() * b.element_size() for b in net.buffers()),
        )

    def activations(self, micro_batch: int, tensor: int = 1, recompute: Recompute = "none") -> ActivationBytes:
        """Estimate the bytes of `micro_batch` examples on one of `tensor` ranks that share the layers.

        The estimate is on the line through traces of other micro-batches; `exactly` costs more.
        """
        high, names = self.exactly(_ANCHOR, tensor, recompute), ActivationBytes.__dataclass_fields__
        if self._precision.startswith("fp32"):
            line = {name: getattr(high, name) * micro_batch / _ANCHOR for name in names}
        else:
            low, share = self.exactly(_SMALL_ANCHOR, tensor, recompute), (micro_batch - _SMALL_ANCHOR)
            grown = {name: (getattr(high, name) - getattr(low, name)) / (_ANCHOR - _SMALL_ANCHOR) for name in names}
            line = {name: getattr(low, name) + share * grown[name] for name in names}
        return ActivationBytes(**{name: max(0, round(value)) for name, value in line.items()})

    def exactly(self, micro_batch: int, tensor: int = 1, recompute: Recompute = "none") -> ActivationBytes:
        """Return the same from a trace of exactly this micro-batch."""
        with _saying_what_failed("model.net"):
            return self._traced(micro_batch, tensor, recompute)

    def _trace(self, micro_batch: int, tensor: int, recompute: Recompute) -> ActivationBytes:
        mode, narrow = FakeTensorMode(), self._narrowed(tensor)[0]
        with mode:
            net = empty_copy(narrow, "cpu")
        if self._flash:
            _without_attention_dropout(net)
        prepare_blocks(net, Train(recompute=recompute))
        with mode:
            inputs = self._inputs(micro_batch, "cpu")
            live = LiveBytes([*net.parameters(), *net.buffers(), *inputs.values()])
            for parameter in net.parameters():
                parameter.register_post_accumulate_grad_hook(lambda tensor: live.is_gradient(tensor.grad))  # type: ignore[no-untyped-call]
            with live:
                with autocast(Train(precision=self._precision), torch.device("cpu")):
                    output, block, hidden = _forward(net, inputs, live)
                    # Saves as much as the engine's losses: logits, log-probabilities of classes, or a difference.
                    in_chunks = TASKS[self._sizes.task].loss == "cross_entropy" and output.shape[-1] >= MANY_CLASSES
                    output = output if in_chunks else output.float()
                    loss = _loss_in_chunks(output) if in_chunks else _loss(output)
                saved = live.now
                torch.autograd.backward([loss])
        input_bytes = sum(value.numel() * value.element_size() for value in inputs.values())
        rest = block * max(0, self.num_blocks - _TRACED)
        peak = live.peak + rest
        return ActivationBytes(
            saved=saved + rest,
            block=block,
            peak=peak,
            apart=live.peak_without_gradients + rest,
            hidden=hidden,
            inputs=input_bytes,
            small=round(peak * live.small_at_peak / max(1, live.peak)),
        )

    def _inputs(self, count: int, device: str) -> dict[str, torch.Tensor]:
        with torch.device(device):
            return example_inputs(self._sizes, count)


class _NoAttentionDropout(TorchFunctionMode, contextlib.ContextDecorator):
    """Sets attention dropout to 0: with dropout the CPU's flash kernel stores the matrix, a GPU's kernel does not."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            kwargs["dropout_p"] = 0.0
        return func(*args, **kwargs)


def _without_attention_dropout(net: nn.Module) -> None:
    """Apply the mode inside each block, because recomputation in the backward pass runs outside the outer mode."""
    stack = BlockStackView.of(net)
    for module in list(stack.blocks) if stack else [net]:
        module.forward = _NoAttentionDropout()(module.forward)


def _forward(net: nn.Module, inputs: Mapping[str, torch.Tensor], live: LiveBytes) -> tuple[torch.Tensor, int, int]:
    """Return the output, the bytes that a block saves on average, and the bytes of the tensor between two blocks."""
    stack = BlockStackView.of(net)
    if stack is None or not len(stack.blocks):
        return net(**inputs), 0, 0
    hidden = stack.enter(**inputs)
    before, size = live.now, hidden.numel() * hidden.element_size()
    traced = list(stack.blocks)[:_TRACED]
    for block in traced:
        hidden = block(hidden)
    stored = (live.now - before) // len(traced)
    return stack.leave(hidden), stored, size


def _loss(output: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(output, -1).sum() if output.shape[-1] > 1 else output.square().sum()


def _loss_in_chunks(output: torch.Tensor) -> torch.Tensor:
    logits = output.flatten(0, -2)
    return chunked_cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64)).sum()


def _narrowed(net: nn.Module, ranks: int) -> tuple[nn.Module, int]:
    """Return one rank's part of a net shared by `ranks`, and the number of weights that are shared but left whole here.

    A layer with gathered outputs is left whole, because the next layer needs whole examples.
    """
    split = tensor_plan(net)
    if ranks == 1 or split is None:
        return net, 0
    narrow, gathered = copy.deepcopy(net), 0
    for path, style in split[0].items():
        layer = narrow.get_submodule(path)
        assert isinstance(layer, nn.Linear)
        if style == "gathered":
            gathered += sum(p.numel() for p in layer.parameters())
            continue
        dimension = 0 if style == "column" else 1
        layer.weight = nn.Parameter(layer.weight.detach().chunk(ranks, dimension)[0].clone())
        if style == "column" and layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias.detach().chunk(ranks)[0].clone())
        layer.out_features, layer.in_features = layer.weight.shape
    return narrow, gathered


def _used_by_enter(net: nn.Module, stack: BlockStackView, inputs: Mapping[str, torch.Tensor]) -> int:
    """Return the number of parameters before the blocks."""
    inside = {id(p) for block in stack.blocks for p in block.parameters()}
    outside = [p for p in net.parameters() if id(p) not in inside and p.requires_grad]
    hidden = stack.enter(**inputs)
    if not outside or not hidden.requires_grad:
        return 0
    used = torch.autograd.grad(hidden.sum(), outside, allow_unused=True)
    return sum(p.numel() for p, gradient in zip(outside, used, strict=True) if gradient is not None)


@contextlib.contextmanager
def _saying_what_failed(name: str) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UserCodeError(
            f"{name}: cannot be run on shapes alone, as the planner does ({type(error).__name__}: {error}): "
            "make its tensors in forward from the inputs, and read no values from them"
        ) from error
