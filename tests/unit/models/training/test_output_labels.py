"""What a model of each output learns: its target, and the weights of the rows."""

import numpy as np
import pytest
import torch

from models.data.preparation import Preparation
from models.training.batches.examples import open_examples
from models.training.output_labels import LabelRules
from models.training.tree_inputs import tree_inputs
from tests.tiny_jobs import MakeJob


@pytest.mark.parametrize(("task", "num"), [("binary", 1), ("multiclass", 1), ("regression", 1)])
def test_a_single_target_is_learnt_as_it_is(make_job: MakeJob, task: str, num: int) -> None:
    job = make_job("table", task, "trees")
    preparation = Preparation.load(job.prepared)
    train = open_examples(job, preparation)[0]
    inputs = tree_inputs(train, preparation)
    labels = list(LabelRules(preparation, "mse", is_balanced=False).labels(train.targets(), None, inputs))
    assert len(labels) == num
    assert np.array_equal(labels[0][0], train.targets().numpy())
    assert labels[0][1] is None


def test_balanced_classes_weigh_alike_and_times_the_rows_own_weights(make_job: MakeJob) -> None:
    job = make_job("table", "binary", "trees")
    preparation = Preparation.load(job.prepared)
    train = open_examples(job, preparation)[0]
    targets, inputs = train.targets(), tree_inputs(train, preparation)
    rules = LabelRules(preparation, "bce", is_balanced=True)
    ((label, weight),) = rules.labels(targets, None, inputs)
    assert weight is not None
    assert np.isclose(weight[label == 0].sum(), weight[label == 1].sum())
    own = torch.full((len(targets),), 3.0)
    ((_, weighted),) = rules.labels(targets, own, inputs)
    assert weighted is not None
    assert np.allclose(weighted, 3 * weight)
