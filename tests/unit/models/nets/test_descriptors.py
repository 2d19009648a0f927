"""Descriptors of pictures: the same in torch and in the graph, for any shape; and what they see."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.data.preparation import Preparation
from models.export.net_graph import net_part
from models.inputs.image.record import ImageInput
from models.nets.descriptors import Colours, Descriptors, Gradients, Sides, build
from models.nets.sizes import Sizes
from models.project_spec.blocks import Image
from tests.finished_jobs import image_preparation, run_stretch
from tests.wide import wide


def prepared(height: int, width: int, channels: int) -> Preparation:
    image = Image(height=height, width=width, channels=channels)
    pixels = ImageInput(name="image", image=image, mean=[0.3] * channels, std=[0.17] * channels)
    return image_preparation().model_copy(update={"inputs": [pixels]})


def pictures(height: int, width: int, channels: int) -> np.ndarray:
    """Noise, a ramp, a flat picture, and one whose channels are equally steep in other directions."""
    random = np.random.default_rng(0)
    levels = random.integers(0, 256, (4, channels, height, width))
    levels[1] = np.linspace(0, 255, width).astype(int)
    levels[2] = 128
    for channel in range(channels):
        turned = np.rot90(np.linspace(0, 250, height * height).reshape(height, height), channel)
        levels[3, channel] = np.resize(turned.astype(int), (height, width))
    return ((levels / 255 - 0.3) / 0.17).astype(np.float32)


def drawn(preparation: Preparation) -> Descriptors:
    """Return a net with filters, a scale and weights that were drawn."""
    net = build(Sizes.of(preparation), patches=20)
    assert isinstance(net, Descriptors)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        net.mean.fill_(0.3)
        net.std.fill_(0.17)
        net.scale.fill_(0.02)
        for tensor in (net.patches.filters, net.patches.bias, net.shift, *net.head.parameters()):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / 10)
    return net.eval()


@pytest.mark.parametrize(
    ("height", "width", "channels"),
    [wide(8, 8, 1), wide(32, 32, 3), wide(90, 40, 3), wide(24, 16, 3), (4, 6, 2), wide(12, 200, 4)],
)
@torch.inference_mode()
def test_the_graph_gives_the_same_outputs(height: int, width: int, channels: int) -> None:
    preparation = prepared(height, width, channels)
    net, inputs = drawn(preparation), pictures(height, width, channels)
    part, output = net_part(net, preparation)
    (made,) = run_stretch(part, {"core/image": inputs}, [output])
    expected = net(torch.from_numpy(inputs)).numpy()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(made, expected, rtol=0, atol=2e-5)
    assert {node.op_type for node in part.nodes} >= {"Conv", "Round"}


@pytest.mark.parametrize("channels", [1, 3, 5])
@torch.inference_mode()
def test_shares_of_colours_add_up_to_the_pixels(channels: int) -> None:
    levels = torch.randint(256, (2, channels, 9, 9), generator=torch.Generator().manual_seed(1)).float()
    shares = Colours(channels, Sides(9, 9))(levels).square().view(2, -1, 9).sum(dim=1)
    torch.testing.assert_close(shares, torch.full((2, 9), 1.0 if channels <= 3 else float(channels)))


@torch.inference_mode()
def test_a_ramp_votes_for_its_direction_and_the_steepest_channel_counts() -> None:
    ramp = torch.arange(16.0).square().expand(16, 16)
    levels = torch.stack([ramp.T * 0.5, ramp, ramp * 0.1]).unsqueeze(0)
    votes = Gradients(Sides(16, 16)).votes(levels)[0, :, 4:-4, 4:-4].sum(dim=(1, 2))
    assert int(votes.argmax()) == 0, "to the right, as the second channel grows, and not down as the first"
    assert float(votes[0]) > 0.9 * float(votes.sum())


def test_sides_are_reduced_in_proportion_and_a_short_one_is_kept() -> None:
    assert Sides(200, 100).reduced(32) == (32, 16)
    assert Sides(200, 10).reduced(32) == (32, 8)
    assert Sides(5, 28).reduced(32) == (5, 28)
