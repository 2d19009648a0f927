"""A loss of whole groups: the cross-entropy between the gains of a group's rows and the softmax of their scores."""

from __future__ import annotations

import torch

from models.training.optimisation.losses import Loss


def listwise_loss(groups: torch.Tensor) -> Loss:
    """Return the loss of all examples of a ranking at once, summed over the groups; convex in the scores.

    A group without a relevant row counts nothing.

    Args:
        groups: The number of each example's group, from 0 on, int64 (example,).

    Source: Cao et al. (2007), ICML (ListNet, top one), with the gains 2^grade - 1 of NDCG: Bruch et al. (2019), ICTIR.
    """
    num = int(groups.max()) + 1

    def total(values: torch.Tensor) -> torch.Tensor:
        return values.new_zeros(num).index_add(0, groups, values)

    def loss(output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, /) -> torch.Tensor:
        del weight  # a ranking has none
        score, gain = output[:, 0].float(), torch.exp2(target.float()) - 1
        highest = score.detach().new_full((num,), -torch.inf).scatter_reduce(0, groups, score.detach(), "amax")
        logarithm = total((score - highest[groups]).exp()).log() + highest
        share = gain / total(gain).clamp(min=1.0)[groups]
        return (share * (logarithm[groups] - score)).sum()

    return loss
