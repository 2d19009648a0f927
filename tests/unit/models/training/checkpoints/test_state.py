import json
import random
from collections import OrderedDict
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn

from models.errors import UserCodeError
from models.project_spec.blocks import Train
from models.training.checkpoints.checkpoint import CheckpointDraft, write_alone
from models.training.checkpoints.shards import StoredCheckpoint
from models.training.checkpoints.state import (
    Progress,
    plain_name,
    put_extra,
    put_optimiser,
    put_random,
    seed_everything,
    stage,
    take_extra,
    take_random,
    take_tensors,
    weights_of,
)
from models.training.optimisation.optimisers import make_optimiser


def draw():
    return [random.random(), random.gauss(0, 1), *np.random.normal(size=3), *torch.randn(3).tolist()]


def test_generators_go_on_where_they_were():
    cpu = torch.device("cpu")
    seed_everything("test", 1)
    draw()
    np.random.normal()
    state = take_random(cpu)
    expected = draw()
    draw()
    put_random(state, cpu)
    assert draw() == expected


def test_net_and_optimiser_go_on_where_they_were(tmp_path):
    def made():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        return net, make_optimiser(net, Train(optimiser="adamw"))

    def step(net, optimiser, seed):
        net(torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()

    net, optimiser = made()
    step(net, optimiser, 1)
    tensors, scalars = take_tensors(net, optimiser)
    stored = StoredCheckpoint(write_alone(CheckpointDraft(tmp_path, 1, {}), stage(tensors)))
    step(net, optimiser, 2)
    other, other_optimiser = made()
    stored.load(take_tensors(other, other_optimiser)[0])
    put_optimiser(stored, scalars, other, other_optimiser)
    step(other, other_optimiser, 2)
    for name, tensor in take_tensors(net, optimiser)[0].items():
        assert torch.equal(tensor, take_tensors(other, other_optimiser)[0][name]), name
    assert all(group["fused"] for group in other_optimiser.param_groups)


def test_copies_do_not_follow_the_net():
    net = nn.Linear(1, 1)
    kept = stage(weights_of(net))
    with torch.no_grad():
        net.weight += 1
    assert not torch.equal(kept["weight"], net.weight)


def test_names_are_those_of_the_net_as_built():
    assert plain_name("_orig_mod.trunk.0._checkpoint_wrapped_module.weight") == "trunk.0.weight"
    wrapped = nn.Sequential(OrderedDict(_orig_mod=nn.Sequential(nn.Linear(1, 1))))
    assert set(weights_of(wrapped)) == {"0.weight", "0.bias"}


def test_tied_weights_are_kept_once():
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    assert set(take_tensors(net, make_optimiser(net, Train()))[0]) == {"net/0.weight"}


def test_state_that_is_no_tensor_is_refused():
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"calls": 1}

        def set_extra_state(self, state):
            pass

    net = Odd(1, 1)
    with pytest.raises(UserCodeError, match=r"_extra_state: got dict, expected tensors"):
        take_tensors(net, make_optimiser(net, Train()))


class Average:
    """Something else that is kept: a tensor that is live, and a number."""

    def __init__(self) -> None:
        self.weight, self.updates = torch.zeros(2), 0

    def state_dict(self):
        return {"weight": self.weight, "updates": self.updates}

    def load_state_dict(self, state):
        assert state["weight"] is self.weight
        self.updates = state["updates"]


def test_what_else_is_kept_comes_back(tmp_path):
    first, second = Average(), Average()
    first.weight += 2
    first.updates = 7
    tensors, scalars = take_extra({"average": first})
    put_extra(
        StoredCheckpoint(write_alone(CheckpointDraft(tmp_path, 1, {}), stage(tensors))), scalars, {"average": second}
    )
    assert (second.weight.tolist(), second.updates) == ([2, 2], 7)


def test_progress_is_plain_data():
    progress = Progress(step=3, history=[{"val_loss": 0.5}], best_value=1.0, best_log_loss=0.5, goal_value=1.0)
    assert Progress(**json.loads(json.dumps(asdict(progress)))) == progress
