import pytest
import torch
from torch import nn

from models.errors import UsageError
from models.nets.adapters import NamedInputs
from models.nets.build import build_net, example_inputs
from models.nets.sizes import Sizes
from models.nets.trunk import features_of
from models.project_spec.blocks import Model

TABLE = Sizes("table", "binary", num_numeric=3, cardinalities=(4,))
IMAGE = Sizes("image", "multiclass", image=(1, 8, 8), num_outputs=3)


@pytest.mark.parametrize(
    ("net", "sizes"), [("mlp", TABLE), ("transformer", TABLE), ("transformer", IMAGE), ("cnn", IMAGE)]
)
def test_the_last_layer_makes_the_output_of_the_features(net, sizes, tmp_path):
    made = build_net(Model(net=net), sizes, tmp_path).eval()
    inputs = example_inputs(sizes)
    last = [module for module in made.modules() if isinstance(module, nn.Linear)][-1]
    torch.testing.assert_close(last(features_of(made, net)(**inputs)), made(**inputs))


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def features(self, numeric):
        return self.layer(numeric)

    def forward(self, numeric):
        return self.features(numeric).sum(1, keepdim=True)


def test_an_adapter_feeds_the_trunk_too():
    assert features_of(NamedInputs(Own(), ("numeric",)), "own")(**example_inputs(TABLE)).shape == (2, 5)


def test_no_trunk_is_told():
    with pytest.raises(UsageError, match="features"):
        features_of(nn.Linear(1, 1), "own")
