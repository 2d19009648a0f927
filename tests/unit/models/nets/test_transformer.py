import pytest
import torch

from models.errors import UsageError
from models.nets.build import example_inputs
from models.nets.transformer import build


def test_every_kind_of_data_becomes_tokens(table, image, series):
    for sizes in (table, image, series):
        net = build(sizes, width=8, layers=1, heads=2)
        assert net(**example_inputs(sizes, 3)).shape == (3, sizes.num_outputs)


def test_positions_tell_steps_apart(series):
    net = build(series, width=8, layers=1, heads=2).eval()
    steps = torch.randn(1, 6, 2)
    assert not torch.allclose(net(series=steps), net(series=steps.flip(1)), atol=1e-5)


def test_sizes_that_do_not_divide_are_refused(table, image):
    with pytest.raises(UsageError, match="heads: got 3, expected a divisor of width 8"):
        build(table, width=8, heads=3)
    with pytest.raises(UsageError, match="patch: got 5, expected a divisor of 8 and 12"):
        build(image, width=8, heads=2, patch=5)
