from pathlib import Path

import pytest
import torch

from models.errors import UsageError, UserCodeError
from models.nets.build import build_net
from models.nets.catalogue import CATALOGUE
from models.nets.sizes import Sizes
from models.spec import Model

OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_inputs, num_outputs, hidden=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(num_inputs, hidden), nn.ReLU(), nn.Linear(hidden, num_outputs))
    def forward(self, x):
        return self.layers(x)

def factory(sizes, depth):
    return nn.Sequential(*[nn.LazyLinear(sizes.num_outputs) for _ in range(depth)])

def not_a_net():
    return 3

def raising(num_numeric):
    raise ValueError("no")

def frozen(num_inputs, num_outputs):
    return nn.Linear(num_inputs, num_outputs).requires_grad_(False)

class Wide(Net):
    def forward(self, x):
        return self.layers(x).repeat(1, 2)

class Odd(Net):
    def forward(self, a, b):
        return a
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(OWN)
    return tmp_path


@pytest.mark.parametrize("name", [name for name, net in CATALOGUE.items() if net.gradient])
def test_ready_nets_are_built_alike_from_the_same_seed(name, table, image, series, text):
    (sizes,) = [sizes for sizes in (table, image, series, text) if sizes.kind == CATALOGUE[name].kinds[0]]
    nets = []
    for _ in range(2):
        torch.manual_seed(3)
        nets.append(build_net(Model(net=name), sizes, Path()))
    for a, b in zip(nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert nets[0].training


def test_an_unknown_argument_names_the_nearest(table):
    with pytest.raises(UsageError, match=r"no argument 'hiden'.*did you mean 'hidden'"):
        build_net(Model(net="mlp", arguments={"hiden": 3}), table, Path())


def test_own_class_and_factory_get_what_they_ask_for(base, table):
    net = build_net(Model(net="./net.py:Net", arguments={"hidden": 6}), table, base)
    assert sum(p.numel() for p in net.parameters()) == 14 * 6 + 6 + 6 * 3 + 3
    net = build_net(Model(net="./net.py:factory", arguments={"depth": 2}), table, base)
    assert not any(isinstance(p, torch.nn.UninitializedParameter) for p in net.parameters())


@pytest.mark.parametrize(
    ("attr", "arguments", "error", "says"),
    [
        ("Net", {"hiden": 3}, UsageError, "did you mean 'hidden'"),
        ("factory", {}, UsageError, "needs depth: give it in model.arguments"),
        ("missing", {}, UsageError, "has no 'missing'"),
        ("not_a_net", {}, UserCodeError, "got int, expected a torch.nn.Module"),
        ("raising", {}, UserCodeError, r"raised ValueError: no .*net.py:\d+"),
        ("frozen", {}, UserCodeError, "no parameter that can be trained"),
        ("Wide", {}, UserCodeError, r"forward gave \(2, 6\), expected \(2, 3\)"),
        ("Odd", {}, UserCodeError, r"forward takes \(a, b\), expected numeric, categorical by name, or one tensor"),
    ],
)
def test_wrong_own_code_says_what_was_got_and_expected(base, table, attr, arguments, error, says):
    with pytest.raises(error, match=says):
        build_net(Model(net=f"./net.py:{attr}", arguments=arguments), table, base)


def test_trees_are_no_torch_net():
    with pytest.raises(UsageError, match="not a torch net"):
        build_net(Model(net="trees"), Sizes("table", "binary", num_numeric=1), Path())
