"""The residual net of pictures: any size, one value a row, and as many parameters as its recipe was measured with."""

from pathlib import Path

import pytest
import torch

from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model


@pytest.mark.parametrize("image", [(3, 32, 32), (1, 28, 28), (2, 3, 5), (1, 1, 1)])
def test_it_takes_pictures_of_any_size(image: tuple[int, int, int]) -> None:
    net = build_net(Model(net="resnet"), Sizes(kind="image", task="multiclass", num_outputs=7, image=image), Path())
    assert net(image=torch.rand(4, *image)).shape == (4, 7)
    assert net.features(torch.rand(4, *image)).shape == (4, 128)


def test_it_has_290_thousand_parameters() -> None:
    net = build_net(
        Model(net="resnet"), Sizes(kind="image", task="multiclass", num_outputs=10, image=(3, 32, 32)), Path()
    )
    assert sum(parameter.numel() for parameter in net.parameters()) == 290_090
