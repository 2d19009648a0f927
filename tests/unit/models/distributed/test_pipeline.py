import pytest
import torch
from torch import nn

from models.distributed.mesh import Mesh
from models.distributed.pipeline import Pipeline, cut
from models.distributed.precision import autocast
from models.errors import UsageError, UserCodeError
from models.nets import mlp, transformer
from models.nets.build import example_inputs
from models.nets.sizes import Sizes
from models.project_spec.blocks import Train
from models.project_spec.parallel_dims import ParallelDims

SIZES = Sizes("table", "multiclass", num_numeric=3, cardinalities=(4, 7), num_outputs=3)


def stages(net: nn.Module, ranks: int, kind: str = "1f1b") -> list[Pipeline]:
    """The pipelines of all ranks, cut from equal nets."""
    import copy

    layout = ParallelDims(pipeline=ranks, plan="pp", microbatches=ranks)
    inputs = example_inputs(SIZES, 2)

    def precision():
        return autocast(Train(), torch.device("cpu"))

    return [cut(copy.deepcopy(net), kind, Mesh(layout), rank, inputs, precision) for rank in range(ranks)]


@pytest.mark.parametrize(("ranks", "kind"), [(2, "1f1b"), (4, "gpipe")])
@pytest.mark.parametrize("build", [mlp.build, transformer.build])
def test_stages_hold_every_parameter_once_and_make_the_net(build, ranks, kind):
    arguments = {"hidden": 8, "layers": 5} if build is mlp.build else {"width": 8, "layers": 4}
    net = build(SIZES, **arguments, dropout=0.0).eval()
    cuts = stages(net, ranks, kind)
    modules = {one.index: one.stage.eval() for one in cuts}
    held = [name for module in modules.values() for name, _ in module.net.named_parameters()]
    assert sorted(held) == sorted(name for name, _ in net.named_parameters())
    inputs = example_inputs(SIZES, 5)
    inputs["numeric"] = torch.randn(5, 3)
    hidden = modules[0](**inputs)
    for index in range(1, len(modules)):
        hidden = modules[index](hidden)
    assert torch.equal(hidden, net(**inputs))


def test_an_mlp_of_one_hidden_layer_has_two_stages_if_no_more():
    net = mlp.build(SIZES, hidden=8, layers=2)
    assert len(stages(net, 2)) == 2
    with pytest.raises(
        UsageError, match=r"train.stages: 3 stages .* a net with 1 block\(s\).*more layers, or take fewer"
    ):
        stages(net, 3)


class Stack(nn.Module):
    def __init__(self, ends_with_parent: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.rest = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        if ends_with_parent:
            self.last = self.first

    def forward(self, numeric, categorical):
        hidden = self.enter(numeric, categorical)
        for block in self.rest:
            hidden = block(hidden)
        return self.leave(hidden)

    def blocks(self):
        return self.rest

    def enter(self, numeric, categorical):
        return self.first(numeric)

    def leave(self, hidden):
        return self.last(hidden)


class Wrong(Stack):
    def leave(self, hidden):
        return self.last(hidden) * (1 if torch.is_grad_enabled() else 2) + self.training

    def forward(self, numeric, categorical):
        return super().forward(numeric, categorical) + 1


def test_what_a_net_says_of_itself_is_checked():
    assert len(stages(Stack(), 2)) == 2
    with pytest.raises(UsageError, match=r"pp needs a net with blocks\(\), enter\(\) and leave\(\).*Linear has not"):
        stages(nn.Linear(3, 3), 2)
    with pytest.raises(UserCodeError, match=r"first.weight is used in 2 places \(.*\), expected one"):
        stages(Stack(ends_with_parent=True), 2)
    with pytest.raises(UserCodeError, match=r"leave\(blocks\(enter\(inputs\)\)\) differs from forward"):
        stages(Wrong(), 2)
