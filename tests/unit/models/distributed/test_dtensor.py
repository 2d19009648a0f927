import weakref

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor

from models.distributed.dtensor import local, spread_optimiser, total_norm
from models.distributed.mesh import Mesh
from models.nets.deferred import is_spread
from models.project_spec.blocks import Train
from models.project_spec.parallel_dims import ParallelDims
from models.training.optimisation.optimisers import make_optimiser

ALONE = Mesh(ParallelDims())


@pytest.fixture(scope="module")
def ranks_of_one(tmp_path_factory):
    """A mesh of one rank: torch's DTensors, without a second process."""
    place = tmp_path_factory.mktemp("ranks") / "meeting"
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_one_process_holds_everything():
    tensors = [torch.randn(3, 2), torch.randn(4)]
    torch.testing.assert_close(total_norm(tensors, ALONE), torch.cat([t.flatten() for t in tensors]).norm())
    assert total_norm([], ALONE) == 0
    assert local(tensors[0]) is tensors[0]
    assert not is_spread(tensors[0])


def test_an_optimiser_of_one_process_stays_as_it_is():
    net = nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(net.parameters(), fused=True)
    assert spread_optimiser(optimiser, Train(shard_optimiser=True), ALONE) is optimiser
    assert optimiser.param_groups[0]["fused"]
    assert [p for group in optimiser.param_groups for p in group["params"]] == list(net.parameters())


@pytest.mark.parametrize("name", ["sgd", "adamw", "adagrad", "rmsprop", "nadam", "radam"])
def test_an_optimiser_of_parts_does_the_steps_of_one_of_the_whole(ranks_of_one, name):
    """The parts are cut by hand: one rank has them all, so that what it holds is what a whole tensor would be."""
    train, plain, sharded = Train(optimiser=name, lr=0.1, momentum=0.9), nn.Linear(3, 2), nn.Linear(3, 2)
    sharded.load_state_dict(plain.state_dict())
    fully_shard(sharded, mesh=ranks_of_one)
    first, second = make_optimiser(plain, train), make_optimiser(sharded, train)
    assert spread_optimiser(second, train, ALONE) is second
    parameters = list(sharded.parameters())
    for step in range(3):
        for net, optimiser in ((plain, first), (sharded, second)):
            net(torch.full((4, 3), step + 1.0)).square().sum().backward()
            optimiser.step()
            with torch.no_grad():
                gradient = weakref.ref(local(net.weight.grad))
            optimiser.zero_grad()
            assert gradient() is None, "its memory is free for the next step"
        assert [p for group in second.param_groups for p in group["params"]] == parameters
    for whole, parameter in zip(plain.parameters(), parameters, strict=True):
        assert torch.equal(whole, parameter.full_tensor())
        assert first.state[whole].keys() == second.state[parameter].keys()
        for key, value in first.state[whole].items():
            held = second.state[parameter][key]
            assert is_spread(held) is (value.shape == whole.shape)
            assert torch.equal(value, held.full_tensor() if is_spread(held) else held), key


def test_a_gradient_of_other_placements_is_first_brought_to_those_of_its_parameter(ranks_of_one):
    parameter = nn.Parameter(distribute_tensor(torch.ones(4), ranks_of_one, [Replicate()]))
    parameter.grad = DTensor.from_local(torch.ones(4), ranks_of_one, [Partial()])
    spread_optimiser(optimiser := torch.optim.SGD([parameter], lr=0.5), Train(), ALONE)
    optimiser.step()
    assert parameter.full_tensor().tolist() == [0.5] * 4
