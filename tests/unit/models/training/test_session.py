import pytest
import torch

from models.data.preparation import Preparation
from models.distributed.world import World
from models.errors import TrainingError
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.training import memory_check as refusal
from models.training.job import CHOICES_FILE
from models.training.rank import run_job
from models.training.session import make_purpose, open_session

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, num_numeric, num_outputs):
        super().__init__()
        self.layers = torch.nn.Sequential({layers})

    def forward(self, numeric):
        return self.layers(numeric)
"""


def test_a_session_goes_on_from_its_checkpoint(make_job):
    job = make_job(arguments={"hidden": 8})
    first = open_session(job, World())
    first.progress.step = 7
    with torch.no_grad():
        next(first.net.parameters()).add_(1)
    first.checkpoint()
    expected = torch.rand(3)
    first.saver.settle()
    again = open_session(job, World())
    assert again.progress.step == 7
    assert again.progress.resumed_from == [7]
    assert torch.equal(torch.rand(3), expected)
    for a, b in zip(first.net.parameters(), again.net.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_checkpoint_of_another_job_is_refused(make_job):
    session = open_session(make_job(), World())
    session.checkpoint()
    session.saver.settle()
    with pytest.raises(TrainingError, match=r"another job \(train.seed: got 0, expected 5\): remove the folder"):
        open_session(make_job(seed=5), World())


def test_the_checkpoint_of_another_net_says_what_differs(make_job, tmp_path):
    """The same spec: the user's own code has changed."""
    job = make_job(net="./net.py:Net")
    (tmp_path / "net.py").write_text(NET.format(layers="torch.nn.Linear(num_numeric, num_outputs)"))
    session = open_session(job, World())
    session.checkpoint()
    session.saver.settle()
    deeper = "torch.nn.Linear(num_numeric, 4), torch.nn.Linear(4, num_outputs)"
    (tmp_path / "net.py").write_text(NET.format(layers=deeper))
    with pytest.raises(
        TrainingError, match=r"another net \(net.layers.0.weight: got \(1, 3\), expected \(4, 3\).*: remove"
    ):
        open_session(job, World())


def test_checkpoints_keep_to_their_share_of_the_time(make_job):
    assert open_session(make_job(), World()).is_checkpoint_due()
    assert not open_session(make_job(job={"checkpoint_share": 0.001}), World()).is_checkpoint_due()
    job = make_job(job={"checkpoints": False})
    assert not open_session(job, World()).is_checkpoint_due()
    assert not job.checkpoint_folder.exists()


def test_a_plan_that_cannot_fit_ends_before_anything_is_written(make_job, monkeypatch):
    monkeypatch.setattr(refusal, "memory_bytes", lambda device: 5e4)  # net 19 kB, AdamW four times that
    job = make_job(arguments={"hidden": 64})
    with pytest.raises(TrainingError, match="what would fit"):
        run_job(job)
    assert [path.name for path in job.folder.rglob("*.*")] == [CHOICES_FILE]


def test_training_is_for_the_goal_and_pretraining_for_the_inputs(make_job):
    job = make_job(arguments={"hidden": 8}, pretrain={"epochs": 1})
    preparation = Preparation.load(job.prepared)
    targets = torch.zeros(4)
    net = build_net(job.model, Sizes.of(preparation), job.project)
    plain = make_purpose(net, job, preparation, targets)
    assert (plain.metric.name, plain.hiding) == ("accuracy", None)
    first = make_purpose(net, job.model_copy(update={"stage": "pretrain"}), preparation, targets)
    assert first.metric.name == "pretrain_loss"
    assert first.metric.direction == "minimize"
    assert first.loss == first.hiding.loss
    assert {f"net.{name}" for name in plain.net.state_dict()} < set(first.net.state_dict())
