import pytest
import torch

from models.nets.rnn import build_gru, build_lstm


@pytest.mark.parametrize("build", [build_gru, build_lstm])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_series_gives_one_value_that_depends_on_every_step(series, build, layers):
    net = build(series, hidden=4, layers=layers).eval()
    steps = torch.randn(3, 6, 2, requires_grad=True)
    output = net(series=steps)
    assert output.shape == (3, 1)
    output.sum().backward()
    assert (steps.grad.abs().sum(dim=2) > 0).all()
