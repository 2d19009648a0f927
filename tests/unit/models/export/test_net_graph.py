import logging

import numpy as np
import pytest
import torch
from torch import nn

from models.errors import UserCodeError
from models.export.net_graph import EXAMPLE_ROWS, net_part, net_parts
from models.inputs.graph_builder import GraphBuilder
from models.nets.build import example_inputs
from models.nets.sizes import Sizes
from tests.finished_jobs import (
    image_preparation,
    run_stretch,
    series_preparation,
    table_preparation,
)


class Net(nn.Module):
    """Embeds, normalises with running statistics, drops out: all that differs between training and serving."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 3)
        self.norm = nn.BatchNorm1d(5)
        self.out = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 1))

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """(batch, 1)."""
        joined = torch.cat([inputs["numeric"], self.embed(inputs["categorical"][:, 0])], dim=1)
        output: torch.Tensor = self.out(self.norm(joined))
        return output


class FixedBatch(nn.Module):
    """Has the batch size of its example in its graph."""

    def forward(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
        """(batch, 1)."""
        return numeric.reshape(3, 2).sum(dim=1, keepdim=True)


class Branching(nn.Module):
    """Branches on a value."""

    def forward(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
        """(batch, 1)."""
        return numeric[:, :1] if numeric.sum() > 0 else -numeric[:, :1]


@pytest.fixture(scope="module")
def exported() -> tuple[Net, GraphBuilder, str]:
    torch.manual_seed(0)
    net = Net()
    net(numeric=torch.randn(64, 2) + 3, categorical=torch.randint(0, 4, (64, 3)))
    return net, *net_part(net, table_preparation())


@pytest.mark.parametrize("count", [1, 2, 5000])
def test_a_graph_takes_any_batch(exported: tuple[Net, GraphBuilder, str], count: int) -> None:
    net, stretch, output = exported
    inputs = {"numeric": torch.randn(count, 2), "categorical": torch.randint(0, 4, (count, 3))}
    feed = {f"core/{name}": tensor.numpy() for name, tensor in inputs.items()}
    (got,) = run_stretch(stretch, feed, [output])
    with torch.inference_mode():
        np.testing.assert_allclose(got, net.eval()(**inputs).numpy(), atol=1e-5)


def test_nets_of_one_trace_have_each_their_own_weights_and_statistics() -> None:
    nets = [Net(), Net()]
    inputs = {"numeric": torch.randn(4, 2), "categorical": torch.randint(0, 4, (4, 3))}
    for shift, net in enumerate(nets):
        net(numeric=torch.randn(64, 2) * 2 + shift, categorical=torch.randint(0, 4, (64, 3)))
    feed = {f"core/{name}": tensor.numpy() for name, tensor in inputs.items()}
    for net, (stretch, output) in zip(nets, net_parts(nets, table_preparation()), strict=True):
        (got,) = run_stretch(stretch, feed, [output])
        with torch.inference_mode():
            np.testing.assert_allclose(got, net(**inputs).numpy(), atol=1e-5)


def test_the_same_net_gives_the_same_bytes(exported: tuple[Net, GraphBuilder, str]) -> None:
    net, stretch, output = exported
    again, same_output = net_part(net, table_preparation())
    assert output == same_output
    for parts, others in ((stretch.nodes, again.nodes), (stretch.constants, again.constants)):
        assert [part.SerializeToString() for part in parts] == [other.SerializeToString() for other in others]


def test_a_graph_holds_no_path_of_this_machine(exported: tuple[Net, GraphBuilder, str]) -> None:
    _, stretch, _ = exported
    assert not [node.name for node in stretch.nodes if node.metadata_props or node.doc_string]
    assert __file__.encode() not in b"".join(node.SerializeToString() for node in stretch.nodes)


def test_names_carry_the_cores_prefix(exported: tuple[Net, GraphBuilder, str]) -> None:
    _, stretch, output = exported
    names = [
        *(constant.name for constant in stretch.constants),
        *(name for node in stretch.nodes for name in node.output),
    ]
    assert output in names
    assert all(name.startswith("core/") for name in names)


def test_the_exporters_logger_is_left_as_it_was(exported: tuple[Net, GraphBuilder, str]) -> None:
    assert logging.getLogger("torch.onnx").level != logging.ERROR


@pytest.mark.parametrize("net", [FixedBatch(), Branching()])
def test_a_net_that_cannot_be_a_graph_is_the_users_own_error(net: nn.Module) -> None:
    with pytest.raises(UserCodeError, match=type(net).__name__):
        net_part(net, table_preparation())


def test_examples_have_the_shapes_that_a_net_is_trained_with() -> None:
    shapes = {
        name: (tuple(tensor.shape), tensor.dtype)
        for name, tensor in example_inputs(Sizes.of(table_preparation()), EXAMPLE_ROWS).items()
    }
    assert shapes == {"numeric": ((3, 2), torch.float32), "categorical": ((3, 3), torch.int64)}
    assert example_inputs(Sizes.of(image_preparation()), EXAMPLE_ROWS)["image"].shape == (3, 2, 4, 6)
    assert example_inputs(Sizes.of(series_preparation()), EXAMPLE_ROWS)["series"].shape == (3, 5, 2)
