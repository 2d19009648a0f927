"""Quantiles are shifted by their errors on validation rows, so that they cover what they state."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from models.data.preparation import Preparation
from models.export.head_graph import head_part
from models.export.quantile_shifts import choose_quantile_shifts
from models.export.trained import validation_predictions
from models.training.optimisation.losses import predictions
from models.training.rank import run_job
from tests.finished_jobs import LEVELS, FinishedJob, run_stretch, table_preparation
from tests.tiny_jobs import MakeJob, job_maker


@pytest.fixture
def make_job(tmp_path) -> MakeJob:
    return job_maker(tmp_path)


def test_the_stated_share_of_the_validation_values_lies_below_each_quantile(finished_job: FinishedJob):
    job = finished_job("linear", "series", "quantile")
    preparation = Preparation.load(job.prepared)
    shifted, record = choose_quantile_shifts(job, preparation)
    facts = record["quantile_shifts"]
    count = facts["num_examples"]
    true = load_file(job.tensors["validation"])["value"]
    assert true.shape == (count, 9), "three horizons of three quantiles"
    below = np.mean(true <= validation_predictions(job, shifted, np.arange(count)), axis=0)
    np.testing.assert_allclose(below, LEVELS * 3, atol=1.5 / count)
    assert np.abs(np.array(facts["share_below"]) - LEVELS * 3).max() > 0.1, "random weights state nothing"
    assert facts["names"][:2] == ["h1_q0.1", "h1_q0.5"]


def test_a_goal_of_one_quantile_is_shifted_and_other_numbers_are_not(make_job: MakeJob):
    job = make_job("table", "regression", "trees", {"rounds": 5}, epochs=1, count=2000)
    preparation = Preparation.load(job.prepared)
    assert choose_quantile_shifts(job, preparation) == (preparation, {})
    job = job.model_copy(update={"metric": "pinball_0.9"})
    run_job(job)
    shifted, record = choose_quantile_shifts(job, preparation)
    true = load_file(job.tensors["validation"])["value"]
    before, after = (
        np.mean(true <= validation_predictions(job, each, np.arange(500))) for each in (preparation, shifted)
    )
    assert before == pytest.approx(record["quantile_shifts"]["share_below"][0])
    assert abs(before - 0.9) > 0.02
    assert after == pytest.approx(0.9, abs=0.002)


def test_a_row_of_weight_two_shifts_as_two_rows_do(make_job: MakeJob):
    job = make_job("table", "regression", "trees", {"rounds": 5}, epochs=1).model_copy(update={"metric": "pinball_0.8"})
    run_job(job)
    preparation = Preparation.load(job.prepared)
    tensors = load_file(job.tensors["validation"])
    num, path = len(tensors["value"]), job.prepared / "weighted.safetensors"
    weight = np.where(tensors["value"] > 5, 2.0, 1.0).astype(np.float32)
    shifts = []
    for rows in (
        {**tensors, "weight": weight},
        {name: np.repeat(part, weight.astype(int), 0) for name, part in tensors.items()},
    ):
        save_file(rows, path)
        changed = job.model_copy(update={"tensors": {**job.tensors, "validation": path}})
        shifts.append(choose_quantile_shifts(changed, preparation)[0].quantile_shifts)
    assert shifts[0] == pytest.approx(shifts[1], abs=1e-12)
    assert shifts[0] != choose_quantile_shifts(job, preparation)[0].quantile_shifts
    assert num == 50


def test_rows_of_weight_zero_are_too_few_as_if_they_were_absent(make_job: MakeJob):
    """Of three rows that all lie below the quantile of .8 none says how far the next one may lie above."""
    job = make_job("table", "regression", "trees", {"rounds": 5}, epochs=1).model_copy(update={"metric": "pinball_0.8"})
    run_job(job)
    preparation, tensors = Preparation.load(job.prepared), load_file(job.tensors["validation"])
    lowest, path = np.argsort(tensors["value"])[:3], job.prepared / "weighted.safetensors"
    weight = np.isin(np.arange(50), lowest).astype(np.float32)
    shifts = []
    for rows in ({**tensors, "weight": weight}, {name: part[weight > 0] for name, part in tensors.items()}):
        save_file(rows, path)
        changed = job.model_copy(update={"tensors": {**job.tensors, "validation": path}})
        shifts.append(choose_quantile_shifts(changed, preparation)[0].quantile_shifts)
    assert shifts == [[0.0], [0.0]]


@pytest.mark.parametrize("log_offset", [None, 0.5])
def test_the_graph_shifts_and_sorts_as_the_trained_model_does(log_offset: float | None):
    from models.data.outputs import with_outputs
    from models.data.target_encoding import TargetEncoding

    target = with_outputs(
        TargetEncoding(name="y", shift=1.0, scale=2.0, log_offset=log_offset), [1, 7], [0.1, 0.5, 0.9]
    )
    shifts = [0.5, 0.0, -3.0, -0.25, 0.25, 0.5]
    update = {"task": "quantile", "target": target, "quantile_shifts": shifts}
    preparation = table_preparation("regression").model_copy(update=update)
    raw = np.random.default_rng(0).normal(size=(40, 6))
    (prediction,) = run_stretch(head_part(preparation, "core/out"), {"core/out": raw}, ["prediction"])
    np.testing.assert_allclose(prediction, predictions(torch.from_numpy(raw), preparation), rtol=1e-6)
    ordered = np.sort(raw.reshape(-1, 2, 3), axis=2).reshape(-1, 6)
    moved = np.sort(target.decode(ordered + shifts).reshape(-1, 2, 3), axis=2)
    np.testing.assert_allclose(prediction, moved.reshape(-1, 6), rtol=1e-6)
    assert (np.diff(moved, axis=2) >= 0).all()
