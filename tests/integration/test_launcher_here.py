"""The rank pool of this machine holds what every launcher holds."""

import os

import psutil
import pytest

from tasks.ranks.rank_pool import RankPool
from tests import warm
from tests.launcher_contract import LauncherContract, Stage

pytestmark = pytest.mark.integration

SUBMIT = """
import sys
from models.training.job import TrainingJob
from tasks.ranks.rank_pool import RankPool

with RankPool() as pool:
    pool.run(TrainingJob.model_validate_json(sys.argv[1], strict=False), lambda e: print(e.epoch, flush=True) is None)
"""


class Here(Stage):
    """Children of the fork server."""

    def __init__(self, pool: RankPool) -> None:
        self.pool = pool

    def train(self, job, on_epoch=None, say=None):
        return self.pool.run(job, on_epoch)

    def submitter(self, job):
        code, (printed, printing) = SUBMIT.replace("sys.argv[1]", repr(job.model_dump_json())), os.pipe()
        submitter = warm.server().start("-c", (code,), dict(os.environ), warm.ROOT, (0, printing, 2))
        os.close(printing)
        submitter.stdout = os.fdopen(printed)
        return submitter

    def ranks(self, job):
        tree = psutil.Process(self.pool._fork_server.pid).children(recursive=True)
        return [process for process in tree if process.status() != psutil.STATUS_ZOMBIE and not process.children()]

    def placed(self, **train):
        return {**train, "ranks": 2}


class TestHere(LauncherContract):
    @pytest.fixture
    def stage(self, pool):
        return Here(pool)

    def test_a_finished_job_needs_no_process(self, stage, job):
        result = stage.train(job(epochs=1))
        with RankPool() as other:
            assert other.run(job(epochs=1)) == result
            assert other._fork_server is None
