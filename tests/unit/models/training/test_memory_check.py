import pytest
import torch
from torch import nn

from models.distributed.world import World
from models.errors import TrainingError
from models.project_spec.blocks import Train
from models.training import memory_check as refusal
from models.training.memory_check import memory_bytes, refuse_what_cannot_fit

MILLION = nn.Linear(1000, 1000, bias=False)
"""Of 4 MB; 16 MB with gradients and AdamW's state."""


def world(train: Train) -> World:
    return World(0, train.ranks).under(train)


@pytest.fixture
def memory(monkeypatch):
    def have(size: float) -> None:
        monkeypatch.setattr(refusal, "memory_bytes", lambda device: size)

    return have


def test_what_fits_just_about_is_let_through(memory):
    memory(16e6)
    train = Train()
    refuse_what_cannot_fit(MILLION, train, world(train))


def test_ranks_of_one_machine_share_its_memory_and_are_told_what_would_fit(memory):
    memory(20e6)
    train = Train(ranks=2)
    with pytest.raises(TrainingError, match=r"ddp over 2 rank\(s\) holds 0.032 GB .* memory is 0.02 GB") as caught:
        refuse_what_cannot_fit(MILLION, train, world(train))
    assert "train.parallel=fsdp (0.016 GB)" in str(caught.value)
    sharded = Train(ranks=2, parallel="fsdp")
    refuse_what_cannot_fit(MILLION, sharded, world(sharded))


def test_a_net_that_cannot_be_made_whole_is_refused_whatever_the_plan(memory):
    memory(7e6)
    train = Train(ranks=2, parallel="fsdp")
    with pytest.raises(TrainingError, match=r"0.008 GB for 2 rank\(s\), and each makes the whole net"):
        refuse_what_cannot_fit(MILLION, train, world(train))


def test_less_state_and_frozen_layers_need_less(memory):
    memory(12e6)
    with pytest.raises(TrainingError, match="a smaller net"):
        refuse_what_cannot_fit(MILLION, Train(), World())
    refuse_what_cannot_fit(MILLION, Train(optimiser="sgd"), World())
    frozen = nn.Sequential(MILLION, nn.Linear(1, 1))
    for parameter in frozen[0].parameters():
        parameter.requires_grad = False
    try:
        refuse_what_cannot_fit(frozen, Train(), World())
    finally:
        MILLION.weight.requires_grad = True


def test_a_sharded_state_counts_once(memory):
    memory(25e6)
    train = Train(ranks=2, shard_optimiser=True)
    refuse_what_cannot_fit(MILLION, train, world(train))


def test_this_machine_has_memory():
    assert 1e8 < memory_bytes(torch.device("cpu")) < 1e15
