import torch
from torch import nn

from models.nets.adapters import adapt
from models.nets.build import example_inputs
from models.nets.sizes import Sizes


class OfX(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 3)

    def forward(self, x):
        return self.layer(x)


def test_a_single_tensor_gets_numbers_and_one_hot_columns(table):
    net = adapt(OfX(3 + 4 + 7), table, "net")
    inputs = example_inputs(table)
    inputs["categorical"][0, 1] = 6
    seen = []
    net.net.layer.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    assert net(**inputs).shape == (2, 3)
    assert seen[0][0].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]


def test_a_single_tensor_of_a_series_is_passed_as_it_is(series):
    net = adapt(nn.Sequential(nn.Flatten(), nn.Linear(12, 1)), series, "net")
    assert net(**example_inputs(series)).shape == (2, 1)


def test_nets_that_take_the_names_are_not_wrapped():
    class Both(nn.Module):
        def forward(self, numeric, categorical):
            return numeric

    class Some(nn.Module):
        def forward(self, numeric):
            return numeric

    sizes = Sizes("table", "regression", num_numeric=1)
    both, some = Both(), Some()
    assert adapt(both, sizes, "net") is both
    assert adapt(some, sizes, "net")(numeric=torch.ones(1), categorical=torch.zeros(1)) == 1
