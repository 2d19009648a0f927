"""Calls of functions in the processes of a rank pool, and the end of jobs from another thread."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.errors import TrainingError
from tasks.ranks.rank_pool import RankPool, StoppedWaitingError

pytestmark = pytest.mark.integration


def test_call_gives_plain_results_and_the_callee_s_own_errors(pool, tmp_path):
    assert pool.call("os:getenv", key="OPENBLAS_NUM_THREADS") == os.environ.get("OPENBLAS_NUM_THREADS", "1")
    with pytest.raises(TrainingError, match="AttributeError"):
        pool.call("models.distributed.order:no_such_function")


def test_a_stopped_pool_ends_the_job_of_another_thread(make_job):
    pool = RankPool(threads=1)
    with pool, ThreadPoolExecutor(1) as threads:
        has_begun = threading.Event()
        running = threads.submit(
            pool.run, make_job(arguments={"hidden": 8}, epochs=100_000), lambda _: has_begun.set() or True
        )
        has_begun.wait(60)
        pool.stop()
        with pytest.raises(StoppedWaitingError):
            running.result(60)
        with pytest.raises(StoppedWaitingError):
            pool.run(make_job(folder="later"))


def test_a_call_whose_fork_server_is_killed_is_made_again_by_a_new_one(tmp_path):
    """The child died with it: nobody else is waited for or killed in its name."""
    marker = tmp_path / "called"
    with RankPool() as pool:
        fork_server = pool.call("os:getppid")
        threading.Timer(0.5, lambda: os.kill(fork_server, signal.SIGKILL)).start()
        assert pool.call("tests.interrupted_calls:pause_once", marker=str(marker)) != fork_server
        assert marker.exists()


def test_a_call_whose_process_is_killed_is_made_again_once(pool, tmp_path):
    """A trial that asked for it must not count as failed: the search would choose another one."""
    fork_server = pool.call("os:getppid")
    assert pool.call("tests.interrupted_calls:killed_once", marker=str(tmp_path / "called")) == fork_server
    with pytest.raises(TrainingError, match="ended by SIGABRT"):
        pool.call("os:abort")
