import pytest
import torch
from torch import nn

from models.distributed.dtensor import total_norm
from models.distributed.mesh import Mesh
from models.project_spec.blocks import Train
from models.project_spec.methods import Start
from models.project_spec.parallel_dims import ParallelDims
from models.training.optimisation.optimisers import clip, is_fused, make_optimiser

RATES = {"adagrad": 0.5, "rmsprop": 0.01}


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "rmsprop", "adagrad", "nadam", "radam", "adafactor"])
def test_every_optimiser_learns_and_spares_biases_the_decay(name):
    net = nn.Linear(2, 1)
    optimiser = make_optimiser(net, Train(optimiser=name, lr=RATES.get(name, 0.05), weight_decay=0.1))
    assert [group["weight_decay"] for group in optimiser.param_groups] == [0.1, 0.0]
    assert optimiser.param_groups[1]["params"][0] is net.bias
    inputs = torch.randn(64, 2)
    losses = []
    for _ in range(150):
        loss = (net(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert is_fused(net)


def test_muon_takes_the_matrices_between_layers_and_adamw_the_rest():
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    optimiser = make_optimiser(net, Train(optimiser="muon", lr=0.05, weight_decay=0.0))
    by_muon = [p for group in optimiser.param_groups if group["muon"] for p in group["params"]]
    assert [p is net[0].weight for p in by_muon] == [True]
    losses = []
    inputs = torch.randn(64, 2)
    for _ in range(100):
        loss = (net(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert set(optimiser.state) == set(net.parameters())
    again = make_optimiser(net, Train(optimiser="muon", weight_decay=0.0))
    again.load_state_dict(optimiser.state_dict())
    before = net[0].weight.detach().clone()
    net(inputs).sum().backward()
    again.step()
    assert not torch.equal(before, net[0].weight)
    assert set(again.state) == set(net.parameters())


def test_patterns_share_out_the_rate_and_the_last_that_fits_decides():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    start = Start(lr_scale={"0": 0.1, "0.bias": 0.5})
    groups = make_optimiser(net, Train(start=start)).param_groups
    shares = {id(p): group["share"] for group in groups for p in group["params"]}
    assert shares == {id(net[0].weight): 0.1, id(net[0].bias): 0.5, id(net[1].weight): 1.0, id(net[1].bias): 1.0}


def test_what_is_frozen_takes_no_state():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    net[0].requires_grad_(False)
    optimiser = make_optimiser(net, Train(optimiser="adagrad"))
    assert {p for group in optimiser.param_groups for p in group["params"]} == set(net[1].parameters())


def test_clipping_is_torch_s():
    layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
    layers[1].load_state_dict(layers[0].state_dict())
    inputs = torch.randn(4, 3)
    for layer in layers:
        (10 * layer(inputs)).square().sum().backward()
    gradients = [parameter.grad for parameter in layers[0].parameters()]
    norm = total_norm(gradients, Mesh(ParallelDims()))
    clip(gradients, norm, 1.0)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(layers[1].parameters(), 1.0))
    torch.testing.assert_close(layers[0].weight.grad, layers[1].weight.grad)
