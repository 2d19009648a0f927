import errno
import shutil

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from models.distributed.dtensor import spread_optimiser
from models.distributed.mesh import Mesh
from models.distributed.world import World
from models.errors import StoreError
from models.project_spec.blocks import Train
from models.project_spec.parallel_dims import ParallelDims
from models.training.checkpoints import checkpoint as module
from models.training.checkpoints.checkpoint import CheckpointDraft, newest
from models.training.checkpoints.shards import StoredCheckpoint, write_together
from models.training.checkpoints.state import put_optimiser, stage, take_tensors
from tests.ranks import on_ranks
from tests.wide import wide


def net_and_optimiser(world, plan):
    torch.manual_seed(0 if plan == "ddp" else 1 + world.rank)
    net = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Linear(10, 3))
    if plan == "fsdp":
        fully_shard(net, mesh=init_device_mesh("cpu", (world.size,)))
    elif plan == "tp":
        parallelize_module(net, init_device_mesh("cpu", (world.size,)), {"0": ColwiseParallel()})
    return net, spread_optimiser(torch.optim.AdamW(net.parameters(), foreach=False), Train(), Mesh(ParallelDims()))


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def write(folder, size, plan, step=1):
    """A checkpoint of a net after one optimiser step; gives its whole tensors."""

    def work(world):
        net, optimiser = net_and_optimiser(world, plan)
        for number, parameter in enumerate(net.parameters()):
            parameter.grad = torch.ones_like(parameter) * (number + 1)
        optimiser.step()
        tensors, _ = take_tensors(net, optimiser)
        mine = stage(tensors) | {f"random/{world.rank}/torch": torch.tensor([world.rank])}
        write_together(CheckpointDraft(folder, step, {"from": world.rank}), mine, torch.distributed.group.WORLD)
        return {name: whole(tensor).detach().clone() for name, tensor in tensors.items()}

    return on_ranks(size, folder.parent, work)


@pytest.fixture(scope="module")
def two_wrote(tmp_path_factory):
    """A folder with the checkpoint that two ranks wrote under `ddp`."""
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    write(folder, 2, "ddp")
    return folder


@pytest.fixture
def folder(two_wrote, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(two_wrote, tmp_path / "checkpoints")


def read(folder, size, plan):
    def work(world):
        net, optimiser = net_and_optimiser(world, plan)
        path = newest(folder, world)
        stored = StoredCheckpoint(path)
        stored.load(take_tensors(net, optimiser)[0])
        put_optimiser(stored, {}, net, optimiser)
        is_sharded = any(isinstance(state["exp_avg"], DTensor) for state in optimiser.state.values())
        assert is_sharded == (plan != "ddp")
        return {name: whole(tensor).detach().clone() for name, tensor in take_tensors(net, optimiser)[0].items()}

    return on_ranks(size, folder.parent, work)


@pytest.mark.parametrize(
    ("wrote", "reads"),
    [
        wide((2, "fsdp"), (4, "fsdp")),
        wide((4, "fsdp"), (1, "ddp")),
        ((2, "ddp"), (2, "fsdp")),
        wide((2, "tp"), (2, "fsdp")),
        ((2, "fsdp"), (2, "tp")),
    ],
)
def test_other_ranks_read_the_same_bits(tmp_path, wrote, reads):
    """Three of the ten rows of a layer to a rank, and one rank of four with none: shards need not be even."""
    expected = write(tmp_path / "checkpoints", *wrote)[0]
    for found in read(tmp_path / "checkpoints", *reads):
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), name


def test_each_rank_writes_its_part_and_the_lowest_what_all_hold(two_wrote):
    path = newest(two_wrote, World())
    sizes = {file.name: file.stat().st_size for file in path.glob("state-*")}
    assert sizes["state-00001.safetensors"] < 300 < sizes["state-00000.safetensors"]
    assert StoredCheckpoint(path).shapes["random/1/torch"] == (1,)


def test_a_flipped_bit_in_any_rank_s_part_is_seen_by_all(folder, tmp_path):
    write(folder, 2, "ddp", step=2)
    file = folder / "step-000000000002" / "state-00001.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert on_ranks(2, tmp_path, lambda world: newest(folder, world).name) == ["step-000000000001"] * 2


def test_a_full_disk_on_one_rank_ends_all_and_keeps_what_was_good(folder, tmp_path):
    original = module.write_tensors

    def full(path, tensors, note):
        if path.name == "state-00001.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        original(path, tensors, note)

    def work(world):
        module.write_tensors = full  # in the rank's own process
        with pytest.raises(StoreError, match=r"rank 1: .*disk is full"):
            write_together(
                CheckpointDraft(folder, 2, {}), {f"net/{world.rank}": torch.ones(3)}, torch.distributed.group.WORLD
            )

    on_ranks(2, tmp_path, work)
    assert [path.name for path in folder.iterdir()] == ["step-000000000001"]


def test_what_is_not_there_is_said(two_wrote):
    stored = StoredCheckpoint(newest(two_wrote, World()))
    assert stored.read("net/none") == {}
    with pytest.raises(StoreError, match=r"net/none"):
        stored.load({"net/none": torch.ones(1)})
    with pytest.raises(StoreError, match=r"Size mismatch.*net/0.bias"):
        stored.load({"net/0.bias": torch.ones(11)})


def test_a_shard_is_read_without_the_rest(tmp_path):
    folder = tmp_path / "checkpoints"
    expected = write(folder, 2, "fsdp")[0]["net/0.weight"]

    def work(world):
        mesh = init_device_mesh("cpu", (2,))
        part = distribute_tensor(torch.zeros(10, 6), mesh, [Shard(1)])
        StoredCheckpoint(newest(folder, world)).load({"net/0.weight": part})
        return part.to_local()

    assert torch.equal(torch.cat(on_ranks(2, tmp_path, work), dim=1), expected)
