import numpy as np
import pytest
import torch

from models.data.preparation import Preparation
from models.data.target_encoding import OutputColumn, TargetEncoding
from models.training.by_rounds.output_rows import LabelSettings, labels
from models.training.tree_inputs import TreeInputs

INPUTS = TreeInputs(np.zeros((4, 1), np.float32), np.zeros((4, 1)), np.ones((4, 1)))
WEIGHTS = torch.tensor([1.0, 1.0, 2.0, 2.0])


def preparation_of(task, **target):
    """A preparation of a table, or of a series where it has a window."""
    return Preparation(kind="table", task=task, target=TargetEncoding(name="y", **target))


def test_balanced_classes_weigh_alike_and_rows_keep_their_shares():
    preparation = preparation_of("binary", classes=["no", "yes"])
    targets = torch.tensor([0, 0, 0, 1])
    ((label, weight),) = labels(LabelSettings(preparation, "bce", True), targets, WEIGHTS, INPUTS)
    assert label.tolist() == [0, 0, 0, 1]
    assert weight[:3].sum() == pytest.approx(weight[3])
    assert weight[2] == pytest.approx(2 * weight[0])


def test_each_label_has_a_target_and_its_own_class_weights():
    outputs = [OutputColumn(name=name, column=name) for name in ("a", "b")]
    preparation = preparation_of("multilabel", outputs=outputs)
    targets = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    learnt = list(labels(LabelSettings(preparation, "bce", True), targets, None, INPUTS))
    assert [label.tolist() for label, _ in learnt] == targets.T.tolist()
    assert learnt[0][1][3] == pytest.approx(3 * learnt[0][1][0])
    assert learnt[1][1] == pytest.approx(np.ones(4))


def test_without_weights_rows_have_none():
    preparation = preparation_of("regression")
    ((_, weight),) = labels(LabelSettings(preparation, "mse", False), torch.ones(4), None, INPUTS)
    assert weight is None


def test_a_relative_error_weighs_rows_by_one_over_their_value():
    preparation = preparation_of("regression", scale=1.0)
    targets = torch.tensor([1.0, 2.0, 4.0, 4.0])
    ((_, weight),) = labels(LabelSettings(preparation, "relative_l1", False), targets, None, INPUTS)
    assert (weight / weight[0]).tolist() == pytest.approx([1, 0.5, 0.25, 0.25])
