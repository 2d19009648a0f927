from typing import Any

import pytest

from models.training.costs.work import work_s
from models.training.job import TREES_FILE, WEIGHTS_FILE, TrainingResult
from models.training.rank import run_job


def _trees(rounds: int, rows: int, seconds: float = 1.0) -> TrainingResult:
    return TrainingResult(
        best_epoch=1,
        value=0.5,
        epochs=[{"rounds": float(rounds)}],
        weights=TREES_FILE,
        seconds=seconds,
        environment={"train_examples": rows, "parameters": {}},
    )


def test_work_grows_with_rounds_and_rows_and_knows_no_clock() -> None:
    assert work_s(_trees(10, 1000), 5) < work_s(_trees(20, 1000), 5) < work_s(_trees(20, 10**6), 5)
    assert work_s(_trees(10, 1000, seconds=1.0), 5) == work_s(_trees(10, 1000, seconds=99.0), 5)


@pytest.mark.parametrize(
    ("rounds", "parameters", "models"),
    [(60, {}, 3), (1, {"n_estimators": 300}, 1), (1, {}, 1), (1, {"n_estimators": None}, 1)],
)
def test_an_estimator_is_counted_by_its_rounds_or_as_if_by_rounds(
    rounds: int, parameters: dict[str, Any], models: int
) -> None:
    """One round of a fit in one go would let a search go on and on in its budget."""
    result = _trees(rounds, 10**5)
    environment = {"train_examples": 10**5, "parameters": parameters, "models": models}
    work = work_s(result.model_copy(update={"environment": environment}), 20)
    assert work == work_s(result.model_copy(update={"environment": environment, "seconds": 99.0}), 20)
    assert work_s(_trees(60, 10**5), 20) < work < work_s(_trees(10**4, 10**5), 20)


def test_a_linear_fit_is_counted_by_its_rows() -> None:
    fit = TrainingResult(
        best_epoch=1, value=0.5, epochs=[{}], weights=WEIGHTS_FILE, environment={"train_examples": 10**6}
    )
    assert 2 < work_s(fit, 10) < 10


def test_a_net_is_counted_by_its_steps(make_job) -> None:
    short, long = (run_job(make_job(epochs=epochs, folder=f"job-{epochs}")) for epochs in (1, 3))
    assert 0.1 < work_s(short, 4) < work_s(long, 4) < 1
