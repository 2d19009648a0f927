import torch

from models.distributed.world import World
from models.project_spec.blocks import Train


def test_one_rank_needs_no_group():
    world = World()
    rows = torch.randn(4, 2)
    assert world.is_first
    assert torch.equal(world.total(rows.clone()), rows)
    assert world.join_shares(rows, 4) is rows
    assert world.from_first([1.5]) == [1.5]
    assert world.gather("x") == ["x"]
    assert (world.data_rank, world.data_size, world.is_output_rank) == (0, 1, True)


def test_ranks_are_replicas_in_a_row_until_a_plan_arranges_them():
    world = World(3, 4)
    assert (world.data_rank, world.data_size) == (3, 4)
    shared = world.under(Train(parallel="fsdp+tp", ranks=4))
    assert (shared.data_rank, shared.data_size, shared.is_output_rank) == (1, 2, False)
    assert (world.under(Train(parallel="pp", ranks=4)).data_rank, world.under(Train(ranks=4)).data_rank) == (0, 3)
