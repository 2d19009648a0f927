import pytest
import torch
from torch import nn

from models.distributed.mesh import Mesh
from models.distributed.parallel import _share_layers, make_plan
from models.distributed.world import World
from models.errors import UsageError
from models.nets import transformer
from models.nets.sizes import Sizes
from models.project_spec.blocks import Train
from models.project_spec.parallel_dims import ParallelDims


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(3, 1), nn.Dropout(0.5)

    def forward(self, numeric):
        return self.drop(self.layer(numeric))


def test_one_process_trains_the_net_itself():
    net, inputs = Toy(), {"numeric": torch.randn(4, 3)}
    plan = make_plan(net, Train(parallel="fsdp", precision="fp32"), World(), inputs, pytest.fail)
    assert plan.net is plan.module is net
    assert plan.num_parameters == 4
    assert plan.describe() | {"parallel": "one", "mesh": {}, "precision": "fp32"} == plan.describe()
    plan.learn(False)
    value = plan.backward(inputs, lambda output, part: output[part].sum(), torch.tensor(0.5))
    torch.testing.assert_close(value, net(**inputs).sum().detach())
    torch.testing.assert_close(net.layer.weight.grad[0], inputs["numeric"].sum(0) / 2)
    assert torch.equal(plan.outputs(inputs), net(**inputs))


def test_a_net_that_cannot_be_shared_so_is_refused_with_what_could():
    with pytest.raises(UsageError, match=r"tp needs a net with tensor_plan\(\) and tensor_parts\(\).*Toy has not"):
        _share_layers(Toy(), Mesh(ParallelDims(tensor=2, plan="tp")))
    sizes = Sizes("table", "multiclass", num_numeric=3, num_outputs=3)
    net = transformer.build(sizes, width=12, heads=6)
    with pytest.raises(UsageError, match=r"train.tensor: 4 ranks cannot share Encoder.* 6: expected one of 2, 3, 6"):
        _share_layers(net, Mesh(ParallelDims(tensor=4, plan="tp")))
