import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from models.planner.live import LiveBytes

MB = 1_000_000


def test_what_lives_is_counted_and_what_died_is_not():
    known = torch.ones(MB // 4)
    with LiveBytes([known]) as live:
        first = known * 2
        view = first[10:]
        assert live.now == MB
        second = first + view.sum()
        del first, view
        assert live.now == MB
        assert live.peak >= 2 * MB
        del second
    assert live.now == 0


def test_fake_tensors_count_as_if_they_were_there():
    with FakeTensorMode():
        known = torch.ones(MB)
        with LiveBytes([known]) as live:
            kept = [known.expand(10_000, MB) + i for i in range(10)]
    assert live.now == 10 * 10_000 * 4 * MB
    assert len(kept) == 10


def test_gradients_are_told_apart():
    layer = nn.Linear(500, 500, bias=False)
    inputs = torch.ones(1, 500)
    with LiveBytes([layer.weight, inputs]) as live:
        layer.weight.register_post_accumulate_grad_hook(lambda weight: live.is_gradient(weight.grad))
        layer(inputs).sum().backward()
    assert live.gradients == MB
    assert live.peak >= MB
    assert live.now < MB / 100
