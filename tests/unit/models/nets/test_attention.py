"""Queries, keys and values come from one product, by whole heads; the tables of rotation are made once."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from models.nets import attention
from models.nets.attention import by_head, query_key_value, rotated
from models.nets.decoder import DecoderBlock
from models.nets.transformer import EncoderBlock


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.name().partition(".")[0].removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def test_a_part_of_the_layers_rows_is_whole_heads() -> None:
    layer, hidden = query_key_value(8), torch.randn(2, 5, 8)
    whole = by_head(layer(hidden), 2)
    half = nn.functional.linear(hidden, layer.weight.chunk(2)[1], layer.bias.chunk(2)[1])
    for part, other in zip(whole, by_head(half, 2), strict=True):
        assert part.shape == (2, 4, 5, 2)
        torch.testing.assert_close(part[:, 2:], other)


@pytest.mark.parametrize("block", [EncoderBlock(16, 2, 0.0), DecoderBlock(16, 2, 1, 0.0)], ids=["encoder", "decoder"])
@pytest.mark.parametrize("is_half", [False, True])
def test_a_block_takes_the_flash_kernel_and_four_products(block: nn.Module, is_half: bool) -> None:
    """Without a mask in memory: query, key and value together, the projection, and the two of the feed-forward net."""
    hidden = torch.randn(2, 6, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_half):
        block(hidden)
        with Operators() as operators:
            block(hidden)
    assert operators.counts["_scaled_dot_product_flash_attention_for_cpu"] == 1
    assert operators.counts["addmm"] == 4
    assert operators.counts["cos"] == operators.counts["tril"] == operators.counts["masked_fill"] == 0


def test_tables_of_a_trace_are_not_kept() -> None:
    attention._cached_angles.cache_clear()
    with FakeTensorMode():
        rotated(torch.randn(1, 2, 7, 4))
    rotated(torch.randn(1, 2, 7, 4, device="meta"))
    with torch.inference_mode():
        rotated(torch.randn(1, 2, 7, 4))
    assert attention._cached_angles.cache_info().currsize <= 1
    query = torch.randn(1, 2, 7, 4, requires_grad=True)
    rotated(query).sum().backward()
    assert attention._cached_angles.cache_info().currsize >= 1
    assert type(rotated(query)) is torch.Tensor
    assert query.grad is not None


def test_compiled_code_takes_the_tables_as_tensors() -> None:
    """A compiler that sees the cosines computes them again for each head and example, in each layer."""
    torch.manual_seed(0)
    block, hidden = DecoderBlock(16, 2, 1, 0.0), torch.randn(2, 6, 16)
    expected = block(hidden)
    targets: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = torch.compile(block, backend=backend, dynamic=False)
    assert torch.equal(compiled(hidden), expected)
    assert "loopline.rotation_angles.default" in targets
    assert "cos" not in targets
    exported = torch.export.export(block, (hidden,))
    assert "aten.cos.default" in {str(node.target) for node in exported.graph.nodes}, "a graph of ONNX holds them"
