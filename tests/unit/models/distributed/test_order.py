import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.distributed.order import SampleOrder, seed_of
from models.errors import TrainingError
from tests.wide import examples


@examples(200)
@given(count=st.integers(16, 500), batch=st.integers(16, 128), world=st.integers(1, 4), accumulate=st.integers(1, 2))
def test_every_example_once_an_epoch_whatever_the_world(count, batch, world, accumulate):
    order = SampleOrder(count, batch, world, accumulate, seed=7)
    seen = []
    for step in range(order.num_steps):
        for micro in range(accumulate):
            for rank in range(world):
                start, stop = order.slice(step, micro, rank)
                assert stop - start >= 2
                seen += order.epoch(3)[start:stop].tolist()
    assert sorted(seen) == list(range(count))


def test_epochs_differ_and_repeat():
    order = SampleOrder(100, 10, seed=1)
    assert torch.equal(order.epoch(0), order.epoch(0))
    assert not torch.equal(order.epoch(0), order.epoch(1))
    assert not torch.equal(order.epoch(0), SampleOrder(100, 10, seed=2).epoch(0))


def test_a_batch_is_the_same_examples_for_any_world():
    for world in (1, 2, 4):
        assert SampleOrder(100, 32, world).bounds(1) == (32, 64)


def test_a_small_rest_joins_the_last_batch():
    assert SampleOrder(100, 33).num_steps == 3
    assert SampleOrder(100, 33).bounds(2) == (66, 100)
    assert SampleOrder(110, 33).num_steps == 4


def test_too_few_examples_for_the_ranks():
    with pytest.raises(TrainingError, match="training examples: got 5, expected at least 8"):
        SampleOrder(5, 32, 2, 2)
    with pytest.raises(TrainingError, match=r"train.batch: got 4, expected at least 8"):
        SampleOrder(50, 4, 4)


def test_seeds_depend_on_every_part():
    assert len({seed_of("a", 1), seed_of("a", 2), seed_of("b", 1), seed_of("a", 1, 0)}) == 4
    assert 0 <= seed_of("x") < 2**63


def test_short_epochs_take_every_example_once_before_any_twice() -> None:
    order = SampleOrder(25, 5, seed=1, pool=103)
    epochs = [order.epoch(epoch) for epoch in range(8)]
    assert {len(epoch) for epoch in epochs} == {25}
    assert order.num_steps == 5
    first, second = torch.cat(epochs[:4]), torch.cat(epochs[4:])
    assert len(set(first.tolist())) == len(set(second.tolist())) == 100
    assert not torch.equal(first, second)
    assert order.part(5) == (1, 25)
    assert torch.equal(SampleOrder(100, 5, seed=1).epoch(3), SampleOrder(100, 5, seed=1, pool=100).epoch(3))
