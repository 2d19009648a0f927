from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from models.nets.build import build_net, example_inputs
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model
from models.training.costs import flops
from models.training.costs.flops import count_flops, empty_copy

TABLE = Sizes("table", "binary", 16, (17, 4))
IMAGE = Sizes("image", "multiclass", image=(1, 28, 28), num_outputs=10)
SERIES = Sizes("series", "regression", 5, window=(12, 5))
NETS = {"mlp": TABLE, "tabm": TABLE, "transformer": TABLE, "cnn": IMAGE, "gru": SERIES, "lstm": SERIES}


def by_torch(net: nn.Module, inputs: dict[str, torch.Tensor]) -> float:
    """torch's own counter on the meta device, where no kernel of a whole LSTM hides its products."""
    net = empty_copy(net, "meta")
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        net(**{name: value.to("meta") for name, value in inputs.items()}).sum().backward()
    return counter.get_total_flops() / len(next(iter(inputs.values())))


@pytest.mark.parametrize("name", NETS)
def test_counts_are_torchs_own_for_real_and_on_the_meta_device(name, monkeypatch):
    net = build_net(Model(net=name), NETS[name], Path())
    inputs = example_inputs(NETS[name])
    expected = by_torch(net, inputs)
    assert count_flops(net, inputs) == expected
    monkeypatch.setattr(flops, "_MOST_REAL", 0)
    assert count_flops(net, inputs) == expected


def test_a_linear_layer_takes_six_times_its_weights_but_for_the_gradient_of_the_data():
    net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))

    class Named(nn.Module):
        def forward(self, numeric):
            return net(numeric)

    assert count_flops(Named(), {"numeric": torch.ones(3, 8)}) == 4 * 8 * 16 + 6 * 16 * 4


def test_the_net_is_as_it_was():
    net = build_net(Model(net="cnn"), IMAGE, Path())
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    count_flops(net, {"image": torch.rand(2, 1, 28, 28)})
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert net.training


def test_a_net_that_cannot_be_counted_is_left_alone():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, numeric):
            raise ValueError("not now")

    assert count_flops(Odd(), {"numeric": torch.ones(2, 3)}) is None
