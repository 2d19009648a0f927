"""What every launcher must do. A third party's test class inherits `LauncherContract` and has a fixture `stage`."""

from __future__ import annotations

import abc
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from models.errors import LooplineError
from models.training.job import EpochReport, TrainingJob, TrainingResult
from tasks.ranks.launcher_suite import EPOCHS, NET, PATIENCE_S
from tasks.ranks.rank_pool import RankPool
from tests.tiny_jobs import job_maker

RAISING = NET.replace("time.sleep(0.02)", 'raise ValueError("the sky is falling")')


class Stage(abc.ABC):
    """An engine for tests."""

    @abc.abstractmethod
    def train(
        self,
        job: TrainingJob,
        on_epoch: Callable[[EpochReport], bool] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> TrainingResult:
        """Train a job to its end through the launcher."""

    @abc.abstractmethod
    def submitter(self, job: TrainingJob) -> subprocess.Popen[str]:
        """A process of its own that calls `train` and prints the number of each epoch."""

    @abc.abstractmethod
    def ranks(self, job: TrainingJob) -> list[psutil.Process]:
        """The live processes of a job's ranks."""

    @abc.abstractmethod
    def placed(self, **train: Any) -> dict[str, Any]:
        """`train` with what makes two ranks on this engine."""


def no_rank_is_left(stage: Stage, job: TrainingJob) -> None:
    """Wait until the ranks of a job have ended."""
    end = time.monotonic() + PATIENCE_S
    while stage.ranks(job):
        assert time.monotonic() < end, "the ranks go on"
        time.sleep(0.1)


class LauncherContract:
    """The same job ends with the same bits wherever it runs, and whatever is killed on the way."""

    @pytest.fixture
    def job(self, tmp_path: Path, stage: Stage) -> Callable[..., TrainingJob]:
        """A function that makes a job of two ranks on the engine."""
        (tmp_path / "net.py").write_text(NET)

        def make(folder: str = "job", epochs: int = EPOCHS, **job: Any) -> TrainingJob:
            return job_maker(tmp_path)(net="./net.py:Net", folder=folder, job=job, **stage.placed(epochs=epochs))

        return make

    @pytest.fixture(scope="class")
    @classmethod
    def expected(cls, tmp_path_factory: pytest.TempPathFactory, pool: RankPool) -> str:
        """The weights of two ranks on this machine that nobody disturbed."""
        place = tmp_path_factory.mktemp("whole")
        (place / "net.py").write_text(NET)
        return pool.run(job_maker(place)(net="./net.py:Net", epochs=EPOCHS, ranks=2)).weights_sha256

    def test_a_job_ends_with_the_same_bits_and_each_epoch_is_reported_once(self, stage, job, expected):
        epochs = []
        result = stage.train(job(), lambda epoch: epochs.append(epoch.epoch) is None)
        assert epochs == list(range(1, EPOCHS + 1))
        assert (result.weights_sha256, result.world_size) == (expected, 2)
        assert stage.train(job()) == result, "a finished job is read"
        no_rank_is_left(stage, job())

    @pytest.mark.wide
    def test_a_killed_rank_starts_again(self, stage, job, expected):
        killed = []

        def kill(epoch: EpochReport) -> bool:
            if not killed:
                killed.append(stage.ranks(job())[-1])
                killed[0].kill()
            return True

        result = stage.train(job(), kill)
        assert killed
        assert (result.weights_sha256, result.restarts) == (expected, 1)

    @pytest.mark.wide  # of a rank pool: tests/integration/test_rank_pool.py
    def test_a_killed_submitter_is_replaced_by_the_next(self, stage, job, expected):
        first = stage.submitter(job())
        try:
            assert first.stdout
            assert first.stdout.readline() == "1\n"
        finally:
            first.kill()
            first.wait()
            first.stdout.close()
        assert stage.train(job()).weights_sha256 == expected

    def test_a_job_stops_when_it_is_said_to_stop(self, stage, job):
        result = stage.train(job(epochs=5000), lambda epoch: epoch.epoch < 2)
        assert result.pruned
        assert len(result.epochs) < 5000

    @pytest.mark.wide
    def test_ctrl_c_ends_every_rank_and_the_next_run_goes_on(self, stage, job, expected):
        def interrupt(epoch: EpochReport) -> bool:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stage.train(job(), interrupt)
        no_rank_is_left(stage, job())
        assert stage.train(job()).weights_sha256 == expected

    def test_an_error_of_a_rank_is_raised_with_its_traceback(self, stage, job, tmp_path):
        (tmp_path / "net.py").write_text(RAISING)
        with pytest.raises(LooplineError, match="the sky is falling") as caught:
            stage.train(job())
        assert 'raise ValueError("the sky is falling")' in "".join(caught.value.__notes__)
