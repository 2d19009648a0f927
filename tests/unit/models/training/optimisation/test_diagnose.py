import pytest

from models.distributed.world import World
from models.errors import TrainingError
from models.training.checkpoints.checkpoint import newest
from models.training.rank import run_job
from models.training.session import checkpoint_folder

POISONED = """
import torch

class Net(torch.nn.Module):
    def __init__(self, num_numeric, num_outputs):
        super().__init__()
        self.inner = torch.nn.Linear(num_numeric, 4)
        self.middle = Poison()
        self.outer = torch.nn.Linear(4, num_outputs)

    def forward(self, numeric):
        return self.outer(self.middle(self.inner(numeric)))


class Poison(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return x / 0 if self.calls == 17 else x
"""


def test_the_step_and_the_first_bad_layer_are_named(make_job, tmp_path):
    (tmp_path / "net.py").write_text(POISONED)
    job = make_job(net="./net.py:Net", count=200, batch=20, epochs=5)
    with pytest.raises(
        TrainingError, match=r"step 16 \(epoch 2\).*output of layer net.middle \(Poison\).*checkpoint of step 10"
    ):
        run_job(job)
    assert newest(checkpoint_folder(job), World()).name == f"step-{10:012d}"


def test_an_update_that_blew_up_is_named(make_job):
    job = make_job(arguments={"hidden": 8}, lr=1e38, optimiser="sgd", clip_norm=None, momentum=0.0)
    with pytest.raises(TrainingError, match=r"not finite at step \d+.*lower train.lr \(now 1e\+38\)"):
        run_job(job)
