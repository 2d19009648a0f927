from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from models.errors import UsageError
from models.nets import mlp, transformer
from models.nets.adapters import NetAdapter, adapt, named_inputs
from models.nets.build import build_net, draft_net, example_inputs
from models.nets.catalogue import CATALOGUE, row_of
from models.nets.sizes import Sizes
from models.nets.splitting import BlockStackView, features_of, tensor_plan
from models.project_spec.blocks import Model

TABLE = Sizes("table", "binary", num_numeric=3, cardinalities=(4,))
IMAGE = Sizes("image", "multiclass", image=(1, 8, 8), num_outputs=3)
READY = {
    "transformer": lambda sizes: transformer.build(sizes, width=8, layers=3, heads=2, dropout=0.0),
    "mlp": lambda sizes: mlp.build(sizes, hidden=8, layers=3, dropout=0.0),
}


class Own(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lift = nn.Linear(width, 4)
        self.stack = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        x = self.enter(x)
        for block in self.stack:
            x = block(x)
        return self.leave(x)

    def blocks(self):
        return self.stack

    def enter(self, x):
        return self.lift(x)

    def leave(self, hidden):
        return hidden[:, :3]

    def tensor_plan(self):
        return {"lift": "gathered"}

    def tensor_parts(self):
        return 4


def through(stack: BlockStackView, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    hidden = stack.enter(**inputs)
    for block in stack.blocks:
        hidden = block(hidden)
    return stack.leave(hidden)


@pytest.mark.parametrize("name", READY)
def test_the_parts_of_a_ready_net_make_its_forward(table, image, series, name):
    for sizes in (table, image, series):
        net = READY[name](sizes).eval()
        inputs = example_inputs(sizes, 3)
        stack = BlockStackView.of(net)
        assert torch.equal(through(stack, inputs), net(**inputs))
        assert stack.blocks


@pytest.mark.parametrize("name", READY)
def test_a_tensor_plan_names_linear_layers_that_divide(table, name):
    net = READY[name](table)
    plan, parts = tensor_plan(net)
    for path, style in plan.items():
        layer = net.get_submodule(path)
        assert isinstance(layer, nn.Linear)
        assert (layer.in_features if style == "row" else layer.out_features) % parts == 0


def test_an_adapted_net_is_split_as_its_own_net_says(table):
    net = adapt(Own(3 + 4 + 7), table, "own")
    inputs = example_inputs(table, 2)
    assert torch.equal(through(BlockStackView.of(net), inputs), net(**inputs))
    plan, parts = tensor_plan(net)
    assert isinstance(net.get_submodule(next(iter(plan))), nn.Linear)
    assert parts == 4


def test_a_net_that_says_nothing_is_no_stack(series):
    net = adapt(nn.Sequential(nn.Flatten(), nn.Linear(12, 1)), series, "net")
    assert BlockStackView.of(net) is None
    assert tensor_plan(net) is None


@pytest.mark.parametrize(
    ("net", "sizes"), [("mlp", TABLE), ("transformer", TABLE), ("transformer", IMAGE), ("cnn", IMAGE)]
)
def test_the_last_layer_makes_the_output_of_the_features(net, sizes, tmp_path):
    made = build_net(Model(net=net), sizes, tmp_path).eval()
    inputs = example_inputs(sizes)
    last = [module for module in made.modules() if isinstance(module, nn.Linear)][-1]
    torch.testing.assert_close(last(features_of(made, net)(**inputs)), made(**inputs))


class OwnTrunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def features(self, numeric):
        return self.layer(numeric)

    def forward(self, numeric):
        return self.features(numeric).sum(1, keepdim=True)


def test_an_adapter_feeds_the_trunk_too():
    adapter = NetAdapter(OwnTrunk(), partial(named_inputs, ("numeric",)))
    assert features_of(adapter, "own")(**example_inputs(TABLE)).shape == (2, 5)


def test_no_trunk_is_told():
    with pytest.raises(UsageError, match="features"):
        features_of(nn.Linear(1, 1), "own")


@pytest.mark.parametrize("name", [name for name in CATALOGUE if row_of(name).by_descent])
def test_the_catalogue_says_which_nets_the_ranks_can_share(name):
    sizes = {
        "table": TABLE,
        "image": IMAGE,
        "series": Sizes("series", "regression", window=(6, 3), num_numeric=3),
        "text": Sizes("text", "language", length=8, num_outputs=7),
    }
    for kind in CATALOGUE[name].kinds:
        net = draft_net(Model(net=name), sizes[kind], Path()).net
        assert (tensor_plan(net) is not None) == (BlockStackView.of(net) is not None) == bool(CATALOGUE[name].shared_by)
