import pytest
import torch

from models.nets.build import example_inputs
from models.nets.cnn import build
from models.nets.sizes import Sizes


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_any_number_of_stages_gives_logits(image, stages):
    assert build(image, width=2, stages=stages, hidden=4)(**example_inputs(image, 3)).shape == (3, 5)


def test_memory_layout_does_not_change_the_output():
    sizes = Sizes("image", "binary", image=(3, 8, 8))
    net = build(sizes, width=4).eval()
    pixels = torch.randn(2, 3, 8, 8)
    assert net.body[0].weight.is_contiguous(memory_format=torch.channels_last)
    plain = net(pixels)
    torch.testing.assert_close(net(pixels.contiguous(memory_format=torch.channels_last)), plain)
