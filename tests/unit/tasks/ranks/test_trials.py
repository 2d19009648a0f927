"""Jobs of trials that are lost, stopped or cancelled; whole searches are in tests/integration/test_search_places.py."""

import threading

import pytest

from models.errors import TrainingError
from models.training.job import EpochReport
from models.training.node import append_progress
from models.training.rank import run_job
from tasks.ranks import launcher
from tasks.ranks.launcher import JobOwner, StoppedWaitingError
from tasks.ranks.trials import PlacedTrials

OWNER = JobOwner("0123456789abcdef", lambda: None)


class Engine:
    """Each submitted job is over at once; `train` does what it does."""

    def __init__(self, train):
        self.train, self.submitted, self.cancelled = train, [], []

    def submit(self, key, job, shape):
        self.submitted.append(key)
        self.train()
        return f"submitted {key}"

    def state(self, key):
        return "ended"

    def cancel(self, key):
        self.cancelled.append(key)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(launcher, "_LOOK_S", 0.001)


def test_a_trial_that_is_ended_counts_up_to_that_epoch(make_job):
    job, seen = make_job(arguments={"hidden": 8}, epochs=4), []
    engine = Engine(lambda: run_job(job, lambda epoch: append_progress(job.folder, epoch) is None))
    result = PlacedTrials(engine, OWNER, print).run(job, lambda epoch: seen.append(epoch.epoch) or epoch.epoch < 2)
    assert (seen, result.pruned, len(result.epochs)) == ([1, 2], True, 2)
    assert result.value == max(values["val_accuracy"] for values in result.epochs)
    whole = PlacedTrials(engine, OWNER, print).run(job, lambda epoch: True)
    assert (whole.pruned, len(whole.epochs)) == (False, 4)
    assert len(engine.submitted) == 1


def test_a_lost_job_is_submitted_again_so_often(make_job):
    job, said = make_job(arguments={"hidden": 8}, max_restarts=2), []
    with pytest.raises(TrainingError, match="ended without a result"):
        PlacedTrials(lost := Engine(lambda: None), OWNER, said.append).run(job, lambda epoch: True)
    assert len(lost.submitted) == 3
    assert sum("was lost: submitted again" in line for line in said) == 2


@pytest.mark.parametrize(
    ("error", "is_cancelled", "num_cancelled"),
    [(KeyboardInterrupt(), False, 1), (SystemExit(), False, 0), (SystemExit(), True, 1), (TrainingError(), True, 0)],
)
def test_whoever_waits_is_stopped_and_the_job_is_cancelled_only_by_a_person(
    make_job, error, is_cancelled, num_cancelled
):
    job = make_job(arguments={"hidden": 8})
    job.folder.mkdir()
    append_progress(job.folder, EpochReport(epoch=1, epochs=3, values={}))
    engine = Engine(lambda: None)
    engine.state = lambda key: "running"
    trials, errors = PlacedTrials(engine, OWNER, print, lambda: is_cancelled), []

    def wait():
        try:
            trials.run(job, lambda epoch: True)
        except StoppedWaitingError as stopped:
            errors.append(stopped)

    waiting = threading.Thread(target=wait)
    waiting.start()
    trials.stop(error)
    waiting.join(30)
    assert len(errors) == 1
    assert len(engine.cancelled) == num_cancelled
