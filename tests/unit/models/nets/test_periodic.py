import math

import torch

from models.nets.mlp import build
from models.nets.periodic import PeriodicEmbedding
from models.nets.sizes import Sizes


def test_a_number_stays_and_mixtures_of_its_waves_stand_beside_it() -> None:
    embed = PeriodicEmbedding(3)
    numeric = torch.randn(5, 3)
    output = embed(numeric).view(5, 3, embed.width)
    torch.testing.assert_close(output[:, :, 0], numeric)
    waves = torch.cos(2 * math.pi * (numeric[:, 1, None] * embed.frequency[1] + embed.phase[1]))
    torch.testing.assert_close(output[:, 1, 1:], waves @ embed.weight[1] + embed.bias[1])


def test_an_mlp_embeds_numbers_only_if_there_are_any() -> None:
    for num_numeric, is_embedded in ((2, True), (0, False)):
        sizes = Sizes(kind="table", task="binary", num_numeric=num_numeric, cardinalities=(4,))
        net = build(sizes, hidden=8, numeric_embedding="periodic")
        assert (net.periodic is not None) is is_embedded
        assert net(numeric=torch.zeros(2, num_numeric), categorical=torch.zeros(2, 1, dtype=torch.int64)).shape == (
            2,
            1,
        )
