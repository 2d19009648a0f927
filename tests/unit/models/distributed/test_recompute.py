from collections.abc import Callable

import pytest
import torch
from torch import nn

from models.distributed.recompute import compile_blocks, prepare_blocks
from models.errors import UsageError
from models.nets import mlp, transformer
from models.nets.build import example_inputs
from models.nets.sizes import Sizes
from models.project_spec.blocks import Train

SIZES = Sizes("table", "multiclass", num_numeric=3, cardinalities=(4, 7), num_outputs=3)


def trained(recompute: str) -> tuple[dict[str, torch.Tensor], int]:
    """Gradients with dropout on, and how many numbers the forward kept for the backward."""
    torch.manual_seed(0)
    net = transformer.build(SIZES, width=16, layers=2, dropout=0.2)
    prepare_blocks(net, Train(recompute=recompute))
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = net(**example_inputs(SIZES, 64))
    output.square().sum().backward()
    return {name: parameter.grad for name, parameter in net.named_parameters()}, sum(kept.values())


def test_recomputing_keeps_less_and_changes_no_bit_and_no_name():
    expected, most = trained("none")
    for kind in ("full", "selective"):
        found, kept = trained(kind)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert kept < most / 2, kind


@pytest.mark.parametrize("kind", ["full", "selective"])
def test_statistics_of_a_batch_norm_count_a_batch_once(kind: str) -> None:
    def after_two_steps(recompute: str) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        net = mlp.build(SIZES, hidden=8, layers=2, norm="batch")
        prepare_blocks(net, Train(recompute=recompute))
        for seed in (1, 2):
            torch.manual_seed(seed)
            net(**example_inputs(SIZES, 64)).square().sum().backward()
        return {**net.state_dict(), **{f"gradient of {name}": one.grad for name, one in net.named_parameters()}}

    expected, found = after_two_steps("none"), after_two_steps(kind)
    assert any(name.endswith("running_mean") for name in expected)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_recomputing_needs_blocks():
    with pytest.raises(UsageError, match=r"train.recompute: got full, but Linear does not name its blocks"):
        prepare_blocks(nn.Linear(2, 2), Train(recompute="full"))


@torch.no_grad()
@pytest.mark.parametrize("build", [mlp.build, transformer.build])
def test_every_block_is_compiled(build: Callable[..., nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch skips the frames of its own files, and the blocks of an MLP are instances of nn.Sequential."""
    calls = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        def run(*inputs: torch.Tensor) -> object:
            calls.append(graph)
            return graph.forward(*inputs)

        return run

    compile_module = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda net, **_: compile_module(net, backend=backend, dynamic=False))
    net = build(SIZES, layers=3)
    names, inputs = list(net.state_dict()), example_inputs(SIZES)
    net.eval()
    expected = net(**inputs)
    compile_blocks(net)
    torch.testing.assert_close(net(**inputs), expected)
    assert len(calls) == len(net.blocks()) >= 2
    assert list(net.state_dict()) == names
