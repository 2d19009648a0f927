"""Trials of a search on a place: each trial is a job of the engine, and this process remains the study's only owner.

So a search goes on where it was killed: the same trial has the same folder, thus the same name, and is attached to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from models.errors import TrainingError
from models.metrics.metrics import Direction, metric_name
from models.training.job import EpochReport, TrainingJob, TrainingResult
from tasks.ranks.launcher import JobLostError, JobOwner, Launcher, is_ended_by_person, train_at

OnEpoch = Callable[[EpochReport], bool]


class PlacedTrials:
    """Trains trials on an engine; safe to use from several threads at once.

    Args:
        place: The engine.
        owner: Whose the trials are.
        say: Receives sentences for the user.
        is_cancelled: Whether a person has cancelled the loop; asked when a signal ends it.
    """

    def __init__(
        self,
        place: Launcher,
        owner: JobOwner,
        say: Callable[[str], None],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._place, self._owner = place, owner
        self._say = say
        self._is_cancelled = is_cancelled
        self._stopped = threading.Event()
        self._is_ended_by_person = False

    def run(self, job: TrainingJob, on_epoch: OnEpoch) -> TrainingResult:
        """Train a trial to its end, on `train.ranks` ranks of one node.

        A job that is lost is submitted again, at most `train.max_restarts` times, and goes on from its last checkpoint.
        A trial that `on_epoch` ends counts up to that epoch, however late the job saw it: so the pruner's decisions,
        and all that follows from them, are those of a search on this machine.

        Raises:
            StoppedWaitingError: `stop` was called.
            UsageError: The engine refuses the job.
            TrainingError: The job was lost too often.
            LooplineError: The error that a rank raised.
        """
        ended_at: list[int] = []
        reported: set[tuple[str, int]] = set()  # a job that is submitted again reports its first epochs again

        def on_new_epoch(epoch: EpochReport) -> bool:
            is_new = (epoch.stage, epoch.epoch) not in reported
            reported.add((epoch.stage, epoch.epoch))
            if is_new and not ended_at and not on_epoch(epoch):
                ended_at.append(epoch.epoch)
            return not ended_at

        result = self._train(job, on_new_epoch)
        return _up_to(result, ended_at[0], job.direction, job.metric) if ended_at else result

    def _train(self, job: TrainingJob, on_epoch: OnEpoch) -> TrainingResult:
        lost = 0
        while True:
            try:
                return train_at(
                    self._place, job, self._owner, on_epoch, self._say, self._stopped.is_set,
                    lambda: self._is_ended_by_person,
                )  # fmt: skip
            except JobLostError as error:
                lost += 1
                if lost > job.train.max_restarts:
                    raise TrainingError(str(error)) from error
                self._say(f"{job.folder.name}: its job was lost: submitted again, from its last checkpoint")

    def stop(self, error: BaseException) -> None:
        """End all calls of `run` soon because of an error. The jobs go on, unless a person means them too."""
        self._is_ended_by_person = is_ended_by_person(error, self._is_cancelled)
        self._stopped.set()


def _up_to(result: TrainingResult, epoch: int, direction: Direction, metric: str) -> TrainingResult:
    """Return the result as of an epoch at which the trial was ended."""
    epochs = result.epochs[:epoch]
    best = (max if direction == "maximize" else min)(values[f"val_{metric_name(metric)}"] for values in epochs)
    return result.model_copy(update={"pruned": True, "epochs": epochs, "value": best})
