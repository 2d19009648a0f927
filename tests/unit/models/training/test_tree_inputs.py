"""Trees on series learn what the reference forecast lacks."""

import tracemalloc
from typing import cast

import numpy as np
import torch

from models.data.preparation import Preparation, WindowReference
from models.training.batches.example_set import ExampleSet
from models.training.batches.examples import open_examples
from models.training.tree_inputs import TreeInputs, tree_inputs
from tests.finished_jobs import series_preparation
from tests.tiny_jobs import MakeJob


def test_a_label_becomes_the_target_again() -> None:
    inputs = TreeInputs(np.zeros((3, 1), np.float32), np.array([[1.0], [2.0], [3.0]]), np.array([[0.5], [1.0], [2.0]]))
    targets = np.array([4.0, 5.0, 6.0], np.float32)
    np.testing.assert_allclose(inputs.output(inputs.label(targets))[:, 0], targets)


def test_some_positions_give_their_own_rows(make_job: MakeJob) -> None:
    job = make_job("series", "regression", "trees")
    preparation = Preparation.load(job.prepared)
    train, _ = open_examples(job, preparation)
    whole, some = tree_inputs(train, preparation), tree_inputs(train, preparation, torch.tensor([4, 1]))
    np.testing.assert_array_equal(some.features, whole.features[[4, 1]])
    np.testing.assert_array_equal(some.base, whole.base[[4, 1]])


class ManyWindows:
    """As many examples of one window."""

    def __len__(self) -> int:
        return 60_000

    def gather(self, positions: torch.Tensor) -> dict[str, torch.Tensor]:
        """(batch, 5, 2)."""
        return {"series": torch.ones(len(positions), 5, 2)}


def test_a_long_series_needs_the_memory_of_its_features_alone() -> None:
    reference = WindowReference(kind="last", column=0, floor=0.1)
    preparation = series_preparation().model_copy(update={"reference": reference})
    tracemalloc.start()
    try:
        inputs = tree_inputs(cast("ExampleSet", ManyWindows()), preparation)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inputs.features.shape[0] == len(inputs.base) == 60_000
    assert peak < 1.5 * (inputs.features.nbytes + inputs.base.nbytes + inputs.slope.nbytes)
