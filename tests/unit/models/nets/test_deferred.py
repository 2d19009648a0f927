"""Nets that are built without memory get values that depend on the seed and the name alone."""

from pathlib import Path

import pytest
import torch
from torch import nn

from models.errors import UserCodeError
from models.nets.build import build_net, draft_net
from models.nets.catalogue import CATALOGUE, row_of
from models.nets.deferred import draft
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model

SIZES = {
    "table": Sizes("table", "binary", num_numeric=3, cardinalities=(4, 200)),
    "image": Sizes("image", "multiclass", image=(1, 8, 8), num_outputs=3),
    "series": Sizes("series", "regression", window=(6, 3), num_numeric=3),
    "text": Sizes("text", "language", length=8, num_outputs=7),
}
CASES = [(name, kind) for name, entry in CATALOGUE.items() for kind in entry.kinds if row_of(name).by_descent]
CPU = torch.device("cpu")


def seed(name: str) -> int:
    return sum(map(ord, name))


@pytest.mark.parametrize(("net", "kind"), CASES)
def test_each_ready_net_is_deferred_and_starts_as_its_constructor_says(net: str, kind: str) -> None:
    """Means and spreads are those of the net that was built as it is, whose numbers are drawn otherwise."""
    drafted = draft_net(Model(net=net), SIZES[kind], Path())
    assert drafted.is_deferred
    assert all(tensor.is_meta for tensor in drafted.net.state_dict().values())
    drafted.fill(CPU, seed)
    expected = build_net(Model(net=net), SIZES[kind], Path()).state_dict()
    for name, tensor in drafted.net.state_dict().items():
        plain = expected[name]
        assert (tensor.shape, tensor.dtype, tensor.stride()) == (plain.shape, plain.dtype, plain.stride())
        spread, error = float(plain.float().std(correction=0)), tensor.numel() ** -0.5
        if tensor.numel() > 1 and spread == 0:
            assert torch.equal(tensor, plain), name
        elif tensor.numel() >= 100:  # fewer numbers show too little
            assert float(tensor.std()) == pytest.approx(spread, rel=4 * error), name
            assert float(tensor.mean()) == pytest.approx(float(plain.mean()), abs=6 * error * spread), name


def test_values_depend_on_the_name_and_on_no_other_layer() -> None:
    def weights(layers: int, threads: int) -> dict[str, torch.Tensor]:
        drafted = draft_net(Model(net="transformer", arguments={"layers": layers}), SIZES["series"], Path())
        drafted.fill(CPU, seed, threads)
        return drafted.net.state_dict()

    one, two = weights(1, 1), weights(2, 3)
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


class Computed(nn.Module):
    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(num_inputs, num_outputs)
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Plain(Computed):
    build_on_meta = True

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__(num_inputs, num_outputs)
        del self.table
        with torch.no_grad():
            nn.init.normal_(self.layer.weight, std=0.5).mul_(3).clamp_(-2, 2)


OWN = """
from tests.unit.models.nets.test_deferred import Computed, Plain

class Wrong(Computed):
    build_on_meta = True
"""


def test_an_own_net_is_built_as_it_is_unless_it_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    as_it_is = draft_net(Model(net="./own.py:Computed"), SIZES["table"], tmp_path)
    assert not as_it_is.is_deferred
    as_it_is.fill(CPU, seed)
    assert torch.equal(as_it_is.net.get_buffer("net.table"), torch.arange(3.0))
    drafted = draft_net(Model(net="./own.py:Plain"), SIZES["table"], tmp_path)
    assert drafted.is_deferred
    drafted.fill(CPU, seed)
    weight = drafted.net.get_parameter("net.layer.weight")
    generator = torch.Generator().manual_seed(seed("net.layer.weight"))
    assert torch.equal(weight, torch.empty(weight.shape).normal_(0, 0.5, generator=generator).mul(3).clamp(-2, 2))
    with pytest.raises(
        UserCodeError, match=r"build_on_meta is set, but the values of net.table are not set as a whole"
    ):
        draft_net(Model(net="./own.py:Wrong"), SIZES["table"], tmp_path)


def _padded() -> nn.Module:
    return nn.Embedding(4, 2, padding_idx=0)


def _tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    return net


def _loaded() -> nn.Module:
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.copy_(torch.eye(2))
    return net


def _truncated() -> nn.Module:
    net = nn.Linear(2, 2)
    nn.init.trunc_normal_(net.weight)  # does nothing on the meta device
    return net


def _never_set() -> nn.Module:
    net = nn.Module()
    net.weight = nn.Parameter(torch.empty(3))
    return net


@pytest.mark.parametrize("build", [_padded, _tied, _loaded, _truncated, _never_set])
def test_values_that_cannot_be_drawn_later_are_made_at_once(build) -> None:
    drafted = draft(build, is_required=False, name="net")
    assert not drafted.is_deferred
    assert not next(drafted.net.parameters()).is_meta
