import torch
from safetensors.torch import load_file
from torch import nn

from models.data.preparation import Preparation
from models.distributed.world import World
from models.training.batches.examples import open_unlabelled
from models.training.batches.pseudo import confident, give_labels
from models.training.rank import run_job


class Fixed(nn.Module):
    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, **inputs):
        return self.output[: len(next(iter(inputs.values())))]


def test_how_sure_a_net_is(make_job):
    job = make_job(unlabelled=3)
    examples = open_unlabelled(job, Preparation.load(job.prepared))
    chance, label = confident(Fixed(torch.tensor([[3.0], [-3.0], [0.1]])), examples)
    torch.testing.assert_close(chance, torch.tensor([3.0, 3.0, 0.1]).double().sigmoid())
    assert label.tolist() == [1, 0, 1]
    chance, label = confident(Fixed(torch.eye(3) * 9), examples)
    assert label.tolist() == [0, 1, 2]
    assert chance.min() > 0.99


def test_only_what_the_teacher_is_sure_of_gets_a_label(make_job):
    teacher = make_job(arguments={"hidden": 8}, unlabelled=60)
    run_job(teacher)
    labels = give_labels(teacher, 0.7, World())
    taken = load_file(labels.path)
    assert labels.counts == {"taken": len(taken["position"]), "unlabelled": 60}
    assert 0 < labels.counts["taken"] < 60
    assert give_labels(teacher, 0.7, World()) == labels
