"""The driver of what learns by rounds, with a learner that cannot be cut: LightGBM's is tested in test_trees.py."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.training.by_rounds.rounds import LearnerInputs, fit_by_rounds
from models.training.job import EpochReport
from tests.tiny_jobs import MakeJob


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@dataclass
class Steps:
    """A learner that adds a share of the way to the target, goes too far after `best` rounds, and cannot be cut."""

    inputs: LearnerInputs
    rounds: int
    best: int
    can_cut: bool = False
    grown: int = 0

    def resume(self, state: bytes, rounds: int) -> None:
        self.grown = int(json.loads(state))
        assert self.grown == rounds

    def can_resume(self, rounds: int) -> bool:
        return True

    def looks(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        yield first, stop

    def grow(self, first: int, stop: int) -> None:
        assert self.grown == first
        self.grown = stop

    def outputs(self) -> NDArray[np.float64]:
        share = 1 - abs(self.grown - self.best) / self.rounds
        return share * self.inputs.validation.targets().double().numpy().reshape(-1, 1)

    def train_loss(self) -> float:
        return 1 / self.grown

    def state(self, rounds: int | None = None) -> bytes:
        assert rounds in (None, self.grown), "it cannot be cut"
        return json.dumps(self.grown).encode()

    def values(self) -> dict[str, float]:
        return {"lr": 0.5}

    def num_parameters(self, state: bytes) -> int:
        return len(state)

    def environment(self) -> dict[str, Any]:
        return {"parameters": {}}


def opened(rounds: int, best: int) -> Callable[[LearnerInputs], Steps]:
    return lambda inputs: Steps(inputs, rounds, best)


def kill_at(epoch: int) -> Callable[[EpochReport], bool]:
    def report(now: EpochReport) -> bool:
        if now.epoch == epoch:
            raise Killed
        return True

    return report


@pytest.mark.parametrize("epoch", [2, 4, 6])
def test_the_state_of_the_best_epoch_is_kept_through_a_kill(make_job: MakeJob, epoch: int) -> None:
    job = make_job("table", "regression", "trees", epochs=6, patience=6)
    with pytest.raises(Killed):
        fit_by_rounds(job, kill_at(epoch), 0, opened(12, best=4))
    result = fit_by_rounds(job, lambda _: True, 0, opened(12, best=4))
    assert result.resumed_from == [2 * (epoch - 1)]
    assert (result.best_epoch, len(result.epochs)) == (2, 6)
    assert (job.folder / result.weights).read_bytes() == b"4"
    assert result.environment["rounds"] == 4


def test_patience_counts_epochs_and_without_it_many_rounds_without_a_better_model_end(make_job: MakeJob) -> None:
    job = make_job("table", "regression", "trees", epochs=20, patience=3)
    assert len(fit_by_rounds(job, lambda _: True, 0, opened(200, best=20)).epochs) == 2 + 3
    job = make_job("table", "regression", "trees", epochs=20, folder="stale")
    assert len(fit_by_rounds(job, lambda _: True, 0, opened(200, best=20)).epochs) == 2 + 5


def test_what_has_no_rounds_is_one_epoch(make_job: MakeJob) -> None:
    job = make_job("table", "regression", "trees", epochs=20)
    result = fit_by_rounds(job, lambda _: True, 0, opened(1, best=1))
    assert [(values["rounds"], values["lr"]) for values in result.epochs] == [(1.0, 0.5)]
    assert result.value < 1e-6
