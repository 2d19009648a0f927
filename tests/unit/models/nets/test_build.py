from pathlib import Path

import pytest
import torch

from models.errors import UsageError, UserCodeError
from models.nets.build import build_net
from models.nets.catalogue import CATALOGUE
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model

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

class Sized(nn.Module):
    def __init__(self, num_inputs, num_outputs, width=16, length=5, num_numeric=99):
        super().__init__()
        self.kept = (width, length, num_numeric)
        self.layer = nn.Linear(num_inputs, num_outputs)
    def forward(self, x):
        return self.layer(x)

def picture(height, num_outputs):
    return nn.Linear(height, num_outputs)

class Empty(Net):
    def __init__(self, num_inputs, num_outputs):
        super().__init__(num_inputs, num_outputs)
        self.extra = nn.ParameterList([torch.zeros(3, 0)])

class Odd(Net):
    def forward(self, a, b):
        return a
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(OWN)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in ("trees", "naive", "smoothing")])
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


def test_no_default_that_the_user_wrote_is_overridden(base, table):
    net = build_net(Model(net="./net.py:Sized"), table, base)
    assert next(module for module in net.modules() if hasattr(module, "kept")).kept == (16, 5, 99)


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
        ("picture", {}, UsageError, r"needs height: give it in model.arguments \(a table has .*num_numeric"),
        ("Empty", {}, UserCodeError, r"the layer 'net.extra' is empty, its weight has shape \(3, 0\)"),
        ("Odd", {}, UserCodeError, r"forward takes \(a, b\), expected numeric, categorical by name, or one tensor"),
    ],
)
def test_wrong_own_code_says_what_was_got_and_expected(base, table, attr, arguments, error, says):
    with pytest.raises(error, match=says):
        build_net(Model(net=f"./net.py:{attr}", arguments=arguments), table, base)


def test_trees_are_no_torch_net():
    with pytest.raises(UserCodeError, match=r"expected a torch\.nn\.Module"):
        build_net(Model(net="trees"), Sizes("table", "binary", num_numeric=1), Path())
