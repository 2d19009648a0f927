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
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import torch.distributed.launcher.api as elastic
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

from models.distributed.forkserver import report_error
from models.distributed.world import World
from models.errors import LooplineError, TrainingError
from models.parent_death import die_with
from models.training.job import EpochReport, Rendezvous, TrainingJob
from models.training.loop import Report
from models.training.rank import device_of, is_of_the_network, join_world, leave_world, local_rank, run_job

# How long a rank with an error checks whether the death of a peer caused it.
_LOOK_S = 0.5
# How long the nodes at the rendezvous wait until enough nodes have joined.
_COME_S = 600


def run_alone(connections: list[Connection], job: TrainingJob) -> None:
    """Run a job with one rank and send its result."""
    restarts = _announce(connections[0])
    world = World(device=device_of(job))
    connections[0].send(("result", run_job(job, _reporter(connections[0], world), world, restarts)))


def run_ranks(connections: list[Connection], job: TrainingJob, meeting: Rendezvous | None = None) -> None:
    """Run this node's `job.train.ranks` ranks until they are done; restart them when one dies.

    Args:
        connections: The agent's own connection, then one for each rank of this node.
        job: The training job.
        meeting: The rendezvous with other nodes; by default there are no other nodes.
    """
    meeting = meeting or Rendezvous()
    logs = Path(tempfile.mkdtemp(prefix="loopline-agent-"))
    # Ranks report their errors over their connections; the agent's log would repeat them.
    logging.disable(logging.CRITICAL)
    # Torch's agents use this process's store, which listens already: no other process can take the chosen port.
    store = None if meeting.is_shared else TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
    launch = _launch(job, meeting, logs) if store is None else _launch_here(job, store.port, logs)
    try:
        elastic.elastic_launch(launch, _rank)(job, connections, os.getpid(), meeting)
    except ChildFailedError as error:
        connections[0].send(("failed", _cause(error)))
    except RendezvousTimeoutError:
        connections[0].send(("failed", f"fewer than {job.train.num_nodes[0]} node(s) came in {_COME_S} s"))
    finally:
        shutil.rmtree(logs, ignore_errors=True)


def _launch_here(job: TrainingJob, port: int, logs: Path) -> elastic.LaunchConfig:
    """Return the config for one node, like `torchrun`'s: a rendezvous would cost 2 s of CPU before the first step."""
    return elastic.LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        rdzv_backend="static",
        rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs={"rank": 0},
        **_ranks(job, logs),
    )


def _launch(job: TrainingJob, meeting: Rendezvous, logs: Path) -> elastic.LaunchConfig:
    low, high = job.train.num_nodes
    return elastic.LaunchConfig(
        min_nodes=low,
        max_nodes=high,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{meeting.host}:{meeting.port}",
        # A node is lost after three seconds without a heartbeat; a node that joins after the start is admitted later.
        rdzv_configs={
            "is_host": meeting.is_host,
            "join_timeout": _COME_S,
            "last_call_timeout": 1,
            "keep_alive_interval": 1,
            "keep_alive_max_attempt": 3,
        },
        # Nodes are numbered in the order of their addresses. Rank 0 writes and reports, so it must be on the host.
        # Other ranks connect only to rank 0's address.
        local_addr=meeting.address if meeting.is_host else f"~{meeting.address}",
        **_ranks(job, logs),
    )


def _ranks(job: TrainingJob, logs: Path) -> dict[str, Any]:
    return {
        "nproc_per_node": job.train.ranks,
        "run_id": "loopline",
        "max_restarts": job.train.max_restarts,
        "monitor_interval": 0.05,
        "start_method": "fork",
        "logs_specs": DefaultLogsSpecs(log_dir=str(logs)),
        "shutdown_timeout": 1,
    }


def _rank(job: TrainingJob, connections: list[Connection], agent: int, meeting: Rendezvous) -> None:
    die_with(agent)
    logging.disable(logging.NOTSET)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connection = connections[1 + local_rank()]
    with _quiet():
        world = join_world(job, functools.partial(_hung, job, connection, meeting))
    hellos = world.gather((meeting.address, agent, os.getpid()))
    peers = [pid for *node, pid in hellos if node == [meeting.address, agent]]
    try:
        restarts = _announce(connection) if world.is_first else 0
        result = run_job(job, _reporter(connection, world), world, restarts)
        if world.is_first:
            connection.send(("result", result))
        leave_world(world)
    except Exception as error:
        if not isinstance(error, LooplineError) and (
            _has_died(peers) or (len(peers) < world.size and is_of_the_network(error))
        ):
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


def _hung(job: TrainingJob, connection: Connection, meeting: Rendezvous, behind: str, stack: str) -> None:
    """Report which ranks are behind to the caller and end this rank; called from the watchdog's thread.

    With several nodes a lost node is no error: the agents restart the ranks of the other nodes.
    """
    text = f"{job.folder}: the ranks stood still for {job.silence_s:g} s: {behind}"
    if meeting.is_shared:
        sys.stderr.write(f"{text}; starting again\n")
    else:
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
