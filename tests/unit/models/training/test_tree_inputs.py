"""Trees on series learn what the reference forecast lacks."""

import numpy as np

from models.data.preparation import Preparation
from models.training.batches.examples import open_examples
from models.training.tree_inputs import TreeInputs, tree_inputs
from tests.tiny_jobs import MakeJob


def test_a_label_becomes_the_target_again() -> None:
    inputs = TreeInputs(np.zeros((3, 1), np.float32), np.array([[1.0], [2.0], [3.0]]), np.array([[0.5], [1.0], [2.0]]))
    targets = np.array([4.0, 5.0, 6.0], np.float32)
    np.testing.assert_allclose(inputs.output(inputs.label(targets)[:, None])[:, 0], targets)


def test_some_positions_give_their_own_rows(make_job: MakeJob) -> None:
    import torch

    job = make_job("series", "regression", "trees")
    preparation = Preparation.load(job.prepared)
    train, _ = open_examples(job, preparation)
    whole, some = tree_inputs(train, preparation), tree_inputs(train, preparation, torch.tensor([4, 1]))
    np.testing.assert_array_equal(some.features, whole.features[[4, 1]])
    np.testing.assert_array_equal(some.base, whole.base[[4, 1]])
