import torch
from torch import nn

from models.distributed.dtensor import is_spread, local, spread_optimiser, total_norm
from models.distributed.mesh import Mesh
from models.project_spec.blocks import Train
from models.project_spec.parallel_dims import ParallelDims

ALONE = Mesh(ParallelDims())


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
