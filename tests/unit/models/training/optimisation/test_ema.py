import pytest
import torch
from torch import nn

from models.training.optimisation.ema import Ema
from models.training.rank import run_job


def test_the_mean_follows_and_soon_forgets_the_first_weights():
    net = nn.Linear(2, 1, bias=False)
    ema = Ema(net, 0.5)
    weights = []
    for step in range(30):
        with torch.no_grad():
            net.weight.fill_(float(step))
        ema.update(step)
        weights.append(float(ema.state_dict()["weight"][0, 0]))
    expected, mean = [], float("nan")
    for step in range(30):
        decay = min(0.5, (1 + step) / (10 + step))
        mean = step if step == 0 else decay * mean + (1 - decay) * step
        expected.append(mean)
    assert weights[1:] == pytest.approx(expected[1:], abs=0.2)
    assert weights[-1] == pytest.approx(28, abs=0.1)


def test_what_is_shown_is_the_mean_and_the_own_weights_come_back_to_the_bit():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    net[0].bias.requires_grad_(False)
    ema = Ema(net, 0.9)
    mean = {name: tensor.clone() for name, tensor in ema.state_dict().items()}
    assert "0.bias" not in mean
    assert "1.running_mean" in mean
    with torch.no_grad():
        net[0].weight.mul_(3.1)
    own = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with ema.shown():
        assert torch.equal(net[0].weight, mean["0.weight"])
    assert all(torch.equal(own[name], tensor) for name, tensor in net.state_dict().items())


def test_the_kept_weights_are_the_mean_s(make_job):
    """With a decay near 1 a short training hardly moves from where the first steps took it."""
    plain = run_job(make_job(arguments={"hidden": 8}, folder="plain"))
    mean = run_job(make_job(arguments={"hidden": 8}, folder="mean", ema=0.99))
    assert [e["train_loss"] for e in plain.epochs] == [e["train_loss"] for e in mean.epochs]
    assert [e["val_loss"] for e in plain.epochs] != [e["val_loss"] for e in mean.epochs]
    assert plain.weights_sha256 != mean.weights_sha256
