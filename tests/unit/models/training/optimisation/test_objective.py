import torch

from models.data.preparation import Preparation
from models.training.optimisation.objective import make_purpose


def test_training_is_for_the_goal_and_pretraining_for_the_inputs(make_job):
    job = make_job(arguments={"hidden": 8}, pretrain={"epochs": 1})
    preparation = Preparation.load(job.prepared)
    targets = torch.zeros(4)
    plain = make_purpose(job, preparation, targets)
    assert (plain.metric.name, plain.hiding) == ("accuracy", None)
    first = make_purpose(job.model_copy(update={"stage": "pretrain"}), preparation, targets)
    assert first.metric.name == "pretrain_loss"
    assert first.metric.direction == "minimize"
    assert first.loss == first.hiding.loss
    assert {f"net.{name}" for name in plain.net.state_dict()} < set(first.net.state_dict())
