import numpy as np
import torch

from models.training.optimisation.listwise import listwise_loss


def test_the_loss_is_the_cross_entropy_of_each_group_with_its_gains():
    groups, grades = torch.tensor([1, 0, 1, 0, 2, 2]), torch.tensor([2.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    scores = torch.tensor([0.3, 500.0, -1.0, 498.0, 1.0, 2.0], requires_grad=True)
    loss = listwise_loss(groups)(scores[:, None], grades)
    first = -np.log(np.exp([0.3, -1.0]) / np.exp([0.3, -1.0]).sum()) @ [3 / 4, 1 / 4]
    second = 2 + np.log(1 + np.exp(-2))  # the group 2 has no relevant row
    np.testing.assert_allclose(loss.item(), first + second, rtol=1e-5)
    loss.backward()
    assert scores.grad is not None
    assert scores.grad[4:].abs().max() == 0


def test_a_level_of_a_group_changes_nothing():
    groups, grades = torch.arange(30) // 5, torch.randint(0, 4, (30,)).float()
    scores = torch.randn(30, 1)
    loss = listwise_loss(groups)
    torch.testing.assert_close(loss(scores, grades), loss(scores + groups[:, None].float(), grades))
