"""Runs a job in children of the fork server: alone, or as ranks under torch's elastic agent.

Messages to the caller: ("start", pid), answered by ("started", pid, restarts so far); ("epoch", pid, EpochReport),
answered by ("answer", pid, go on); ("result", TrainingResult); ("error", type, text, traceback); ("failed", text). The
job ends when the stream is closed.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import torch.distributed.launcher.api as elastic
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, get_error_handler

from models.distributed.forkserver import report_error
from models.distributed.world import World
from models.errors import LooplineError, TrainingError
from models.files import storing
from models.parent_death import die_with
from models.project_spec.blocks import Train
from models.training.job import EpochReport, TrainingJob
from models.training.known_errors import explaining
from models.training.loop import Report
from models.training.rank import device_of, join_world, leave_world, local_rank, run_job

# How long a rank with an error checks whether the death of a peer caused it.
_LOOK_S = 0.5
_FORK_LOOK_S = 0.002


class ForkGate:
    """Holds the ranks of this machine back until the agent has forked all of them.

    A rank that connects to the store has the store's thread in the agent look its address up. A rank that was forked
    at that moment inherited the lock of glibc's resolver, which nobody could open: under load, one of six starts of
    four ranks stood still in `getnameinfo`.
    """

    def __init__(self) -> None:
        self._start = memoryview(mmap.mmap(-1, 8)).cast("Q")  # shared with the ranks: the last whole start, from 1 on

    def wait(self, start: int, is_last: bool) -> None:
        """Wait for the rank that is forked last.

        Args:
            start: The number of this start of the ranks, from 1 on.
            is_last: Whether this is the rank that is forked last.
        """
        if is_last:
            self._start[0] = start
        while self._start[0] < start:
            time.sleep(_FORK_LOOK_S)


def run_alone(connections: list[Connection], job: TrainingJob) -> None:
    """Run a job with one rank and send its result."""
    restarts = _announce(connections[0])
    world = World(device=device_of(job))
    connections[0].send(("result", run_job(job, _reporter(connections[0], world), world, restarts)))


def run_ranks(connections: list[Connection], job: TrainingJob) -> None:
    """Run the `job.train.ranks` ranks on this machine until they are done; restart them when one dies.

    Args:
        connections: The agent's own connection, then one for each rank.
        job: The training job.
    """
    device_of(job)  # refuses ranks without a GPU of their own before any starts
    scratch = str(job.scratch_folder)
    with storing(job.folder):
        job.scratch_folder.mkdir(parents=True, exist_ok=True)
    # Ranks report their errors over their connections; the agent's log would repeat them.
    logging.disable(logging.CRITICAL)
    # Torch's agents use this process's store, which listens already: no other process can take the chosen port.
    store = _loopback_store()
    try:
        elastic.elastic_launch(_launch(job.train, store.port, scratch), _rank)(
            job, connections, os.getpid(), ForkGate()
        )
    except ChildFailedError as error:
        connections[0].send(("failed", _cause(error)))


def _loopback_store() -> TCPStore:
    """Return a store that listens on loopback alone: by itself it would take connections from all addresses."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=socket.SOMAXCONN)
    port = listener.getsockname()[1]
    return TCPStore("127.0.0.1", port, is_master=True, multi_tenant=True, master_listen_fd=listener.detach())


def _launch(train: Train, port: int, logs: str) -> elastic.LaunchConfig:
    """Return the config for one node, like `torchrun`'s: a rendezvous would cost 2 s of CPU before the first step."""
    return elastic.LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        rdzv_backend="static",
        rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs={"rank": 0},
        nproc_per_node=train.ranks,
        run_id="loopline",
        max_restarts=train.max_restarts,
        monitor_interval=0.05,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=logs),
        shutdown_timeout=1,
    )


def _rank(job: TrainingJob, connections: list[Connection], agent: int, gate: ForkGate) -> None:
    """Run a rank; leave its error in the job's folder alone: torch would leave it among the temporary files too."""
    try:
        _run_rank(job, connections, agent, gate)
    except Exception as error:  # noqa: BLE001  every error ends the rank
        get_error_handler().record_exception(error)
        sys.exit(1)


def _run_rank(job: TrainingJob, connections: list[Connection], agent: int, gate: ForkGate) -> None:
    die_with(agent)
    gate.wait(int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1, is_last=local_rank() == job.train.ranks - 1)
    logging.disable(logging.NOTSET)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connection = connections[1 + local_rank()]
    with _quiet():
        world = join_world(job, functools.partial(_hung, job, connection))
    peers: list[int] = []
    try:
        with explaining(f"rank {world.rank}"):  # the first collective, for which NCCL connects the ranks
            peers = world.gather(os.getpid())
        restarts = _announce(connection) if world.is_first else 0
        result = run_job(job, _reporter(connection, world), world, restarts)
        if world.is_first:
            connection.send(("result", result))
        leave_world(world)
    except Exception as error:
        if not isinstance(error, LooplineError) and (not peers or _has_died(peers)):
            raise
        report_error(connection, error)
        raise
    gc.collect()


def _announce(connection: Connection) -> int:
    connection.send(("start", os.getpid()))
    while True:
        match connection.recv():
            case ("started", pid, int(restarts)) if pid == os.getpid():
                return restarts


def _reporter(connection: Connection, world: World) -> Report:
    def ask(epoch: EpochReport) -> bool:
        connection.send(("epoch", os.getpid(), epoch))
        while True:
            # Ignores an answer to a rank that has died since.
            match connection.recv():
                case ("answer", pid, bool(go_on)) if pid == os.getpid():
                    return go_on

    def report(epoch: EpochReport) -> bool:
        # The ranks may wait for the caller without a time limit.
        with world.excused():
            return ask(epoch)

    return report


def _hung(job: TrainingJob, connection: Connection, behind: str, stack: str) -> None:
    """Report which ranks are behind to the caller and end this rank; called from the watchdog's thread."""
    text = f"{job.folder}: the ranks stood still for {job.silence_s:g} s: {behind}"
    connection.send(
        ("error", TrainingError.__name__, f"{text}; the checkpoints are kept: run again to continue", stack)
    )
    sys.stderr.flush()
    os._exit(1)


def _has_died(peers: list[int]) -> bool:
    """Return whether a peer has died: its death is then the cause of this rank's error."""
    end = time.perf_counter() + _LOOK_S
    while time.perf_counter() < end:
        for pid in peers:
            try:
                if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                    return True
            except psutil.NoSuchProcess:
                return True
        time.sleep(0.02)
    return False


def _cause(error: ChildFailedError) -> str:
    rank, failure = error.get_first_failure()
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        hint = ": out of memory? train a smaller net or batch" if name == "SIGKILL" else ""
        return f"rank {rank} was killed by {name}{hint}"
    return f"rank {rank} ended with exit code {failure.exitcode}: {failure.message}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide gloo's greeting, which C++ code prints to the terminal."""
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.dup2(stderr_copy, 1)
        os.close(stderr_copy)
