import numpy as np
import pytest
from sklearn.metrics import mean_pinball_loss

from models.data.preparation import Preparation
from models.export.trained import num_validation_examples, validation_predictions
from models.export.validation_scores import BLOCKS, validation_scores
from models.training.batches.examples import open_examples
from tests.finished_jobs import LEVELS, FinishedJob


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "quantile"])
def test_scores_are_of_the_jobs_own_predictions(finished_job: FinishedJob, task: str) -> None:
    net = "mlp" if task == "quantile" else "trees"
    job = finished_job(net, task=task)
    made = validation_scores({net: job.model_dump(mode="json")})
    preparation = Preparation.load(job.prepared)
    target = open_examples(job, preparation)[1].values()
    predicted = validation_predictions(job, preparation, np.arange(num_validation_examples(job)))
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
