import numpy as np
import pytest

from models.data.preparation import Preparation
from models.export.trained import num_validation_examples, validation_predictions
from tests.finished_jobs import FinishedJob

KINDS = [("mlp", "table", "binary"), ("trees", "table", "regression"), ("mlp", "series", "regression")]
KINDS += [("trees", "series", "regression")]


@pytest.mark.parametrize(("net", "kind", "task"), KINDS)
def test_predictions_are_of_the_examples_asked_for(finished_job: FinishedJob, net: str, kind: str, task: str) -> None:
    job = finished_job(net, kind, task)
    preparation = Preparation.load(job.prepared)
    count = num_validation_examples(job.tensors)
    assert count == preparation.rows["validation"]
    whole = validation_predictions(job, preparation, np.arange(count))
    assert (whole.shape, whole.dtype) == ((count,), np.float64)
    some = np.array([0, 3, count - 1])
    np.testing.assert_allclose(validation_predictions(job, preparation, some), whole[some], rtol=1e-5, atol=1e-7)


def test_regressions_are_predicted_in_their_own_unit(finished_job: FinishedJob) -> None:
    job = finished_job("trees", task="regression")
    preparation = Preparation.load(job.prepared)
    predicted = validation_predictions(job, preparation, np.arange(num_validation_examples(job.tensors)))
    assert 40 < predicted.mean() < 60
