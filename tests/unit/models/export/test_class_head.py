"""The class head: calibrated where it helps, with the threshold of the goal."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models.data.preparation import Preparation
from models.export.class_head import choose_class_head
from models.export.trained import validation_predictions
from models.metrics.metrics import METRICS
from models.training.rank import run_job
from tests.tiny_jobs import MakeJob, job_maker


@pytest.fixture
def make_job(tmp_path) -> MakeJob:
    return job_maker(tmp_path)


def test_a_model_of_balanced_weights_is_calibrated_and_decides_for_f1(make_job: MakeJob):
    job = make_job("table", "binary", "trees", {"rounds": 40, "lambda_l2": 500.0}, epochs=4, count=2000)
    job = job.model_copy(update={"metric": "f1"})
    run_job(job)
    preparation, record = choose_class_head(job, Preparation.load(job.prepared))
    facts = record["class_head"]
    assert facts["calibrated"]
    assert facts["log_loss_after"] < facts["log_loss"]
    assert preparation.class_head.slope > 1, "strong regularisation makes timid trees"
    assert 0.2 < preparation.class_head.threshold < 0.8
    assert preparation.class_head.threshold != 0.5
    before, after = (
        validation_predictions(job, each, np.arange(100)) for each in (Preparation.load(job.prepared), preparation)
    )
    assert np.array_equal(np.argsort(before), np.argsort(after))


def test_numbers_have_no_class_head(make_job: MakeJob):
    job = make_job("table", "regression", "trees", {"rounds": 5}, epochs=1)
    preparation = Preparation.load(job.prepared)
    assert choose_class_head(job, preparation) == (preparation, {})


def test_a_refitted_model_has_the_class_head_of_its_first_fit(make_job: MakeJob):
    """It knows the validation rows, on which it looks surer than it is."""
    arguments = {"rounds": 40, "lambda_l2": 500.0}
    heads = []
    for refit in (True, False):
        job = make_job("table", "binary", "trees", arguments, epochs=4, count=2000, folder=f"{refit}", refit=refit)
        job = job.model_copy(update={"metric": "f1"})
        run_job(job)
        heads.append(choose_class_head(job, Preparation.load(job.prepared))[0].class_head)
        heads.append(validation_predictions(job, Preparation.load(job.prepared), np.arange(100)))
    assert heads[0] == heads[2]
    assert heads[0].slope != 1
    assert not np.array_equal(heads[1], heads[3])


def test_weights_count_in_calibration_and_threshold(make_job: MakeJob):
    """Nine of ten negatives were left out of the rows, which their weight undoes: the export must not pull it back."""
    job = make_job("table", "binary", "linear", count=4000)
    for path in job.tensors.values():
        tensors = load_file(path)
        save_file({**tensors, "weight": np.where(tensors["target"] == 1, 0.2, 1.8).astype(np.float32)}, path)
    job = job.model_copy(update={"metric": "balanced_accuracy"})
    run_job(job)
    preparation, record = choose_class_head(job, Preparation.load(job.prepared))
    validation = load_file(job.tensors["validation"])
    target, weight = validation["target"], validation["weight"].astype(np.float64)
    before, after = (
        validation_predictions(job, each, np.arange(len(target)))
        for each in (Preparation.load(job.prepared), preparation)
    )
    losses = [METRICS["log_loss"].value(target, each, weight) for each in (before, after)]
    assert losses[1] < losses[0] + 0.002, "unweighted it is pulled to the share of the rows, .5"
    assert preparation.class_head.threshold == pytest.approx(np.average(target, weights=weight), abs=0.02)
    assert record["class_head"]["log_loss"] == pytest.approx(losses[0])
