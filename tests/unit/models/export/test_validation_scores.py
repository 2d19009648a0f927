from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import mean_pinball_loss

from models.data.preparation import Preparation
from models.export.trained import num_validation_examples, validation_predictions
from models.export.validation_scores import BLOCKS, scores_on_test, validation_scores, validation_value
from models.metrics.metrics import metric_of
from models.training.batches.example_set import WEIGHT
from models.training.batches.examples import open_examples
from models.training.model_choice import as_array, decide, score
from tests.finished_jobs import LEVELS, FinishedJob


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "quantile"])
def test_scores_are_of_the_jobs_own_predictions(finished_job: FinishedJob, task: str) -> None:
    net = "mlp" if task == "quantile" else "trees"
    job = finished_job(net, task=task)
    made = validation_scores({net: job.as_json()})
    preparation = Preparation.load(job.prepared)
    target = open_examples(job, preparation)[1].values()
    predicted = validation_predictions(job, preparation, np.arange(num_validation_examples(job.tensors)))
    expected = {
        "binary": lambda: ((predicted > 0.5) == target).mean(),
        "multiclass": lambda: (predicted.argmax(axis=1) == target).mean(),
        "regression": lambda: np.abs(predicted - target).mean(),
        "quantile": lambda: np.mean(
            [mean_pinball_loss(target[:, at], predicted[:, at], alpha=level) for at, level in enumerate(LEVELS)]
        ),
    }[task]()
    score = made["scores"][net]
    assert score["value"] == pytest.approx(expected)
    assert len(score["without"]) == min(BLOCKS, len(target))
    assert np.mean(score["without"]) == pytest.approx(expected, abs=0.1 * abs(expected))
    assert np.isfinite(made["constant"])


@pytest.mark.parametrize("metric", ["f1", "cost_1_5", "balanced_accuracy", "roc_auc"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_scores_are_those_of_the_trials(
    finished_job: FinishedJob, tmp_path: Path, metric: str, is_weighted: bool
) -> None:
    job = finished_job("trees").model_copy(update={"metric": metric})
    job = job.model_copy(update={"direction": "minimize" if metric == "cost_1_5" else "maximize"})
    if is_weighted:
        tensors = load_file(job.tensors["validation"])
        tensors[WEIGHT] = torch.linspace(0, 9, len(tensors["target"]))
        save_file(tensors, tmp_path / "validation.safetensors")
        job = job.model_copy(update={"tensors": {**job.tensors, "validation": tmp_path / "validation.safetensors"}})
    preparation = Preparation.load(job.prepared)
    train, examples = open_examples(job, preparation)
    predicted = validation_predictions(job, preparation, np.arange(len(examples)))
    goal, weights = metric_of(job, preparation, job.project), as_array(examples.weights())
    share = np.full(len(examples), train.values().mean())
    expected, constant = (score(goal, "binary", examples.values(), each, weights).goal for each in (predicted, share))
    made = validation_scores({"trees": job.as_json()})
    found = made["scores"]["trees"]
    assert found["value"] == pytest.approx(expected, rel=1e-12)
    assert len(set(found["without"])) > 1, "each block counts"
    assert made["constant"] == pytest.approx(constant, rel=1e-12)
    assert validation_value(job.as_json()) == found["value"]


def test_scores_on_test_are_of_the_decision_that_validation_made(finished_job: FinishedJob) -> None:
    job = finished_job("trees").model_copy(update={"metric": "f1"})
    preparation, goal = Preparation.load(job.prepared), metric_of(job, Preparation.load(job.prepared), job.project)
    on_test = job.model_copy(update={"tensors": {**job.tensors, "validation": job.tensors["test"]}})
    sides = []
    for side in (job, on_test):
        positions = np.arange(num_validation_examples(side.tensors))
        examples = open_examples(side, preparation)[1]
        sides.append((examples.values(), validation_predictions(side, preparation, positions)))
    decided = decide(goal, preparation.task, *sides[0])
    target, predicted = sides[1]
    value, error = scores_on_test({"trees": job.as_json()})["trees"]
    assert value == pytest.approx(decided.metric.value(target, decided.apply(predicted)))
    assert 0 < error < 0.3
    as_validation = job.model_copy(update={"tensors": {**job.tensors, "test": job.tensors["validation"]}})
    assert scores_on_test({"trees": as_validation.as_json()})["trees"][0] == validation_value(job.as_json())
