"""Machines without a scheduler: a person runs the command, here two agents on one machine."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time

import psutil
import pytest

from models.training.job import STOP_FILE
from tasks.ranks.launcher import JobOwner, train_at
from tasks.ranks.launcher_suite import NET, PATIENCE_S
from tasks.ranks.torchrun import Torchrun
from tests.tiny_jobs import job_maker

pytestmark = pytest.mark.timeout(600)


def agent(command):
    return subprocess.Popen(["bash", "-c", f"exec {command}"], env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})


def end(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    process.wait()


def until_world_size(job, size):
    """Wait until a checkpoint was written by so many ranks."""
    limit, seen = time.monotonic() + 2 * PATIENCE_S, 0
    while seen != size:
        assert time.monotonic() < limit, f"{seen} rank(s), expected {size}"
        time.sleep(0.2)
        for state in sorted(job.folder.glob("checkpoints/step-*/state.json"), key=lambda path: path.parent.name)[-1:]:
            with contextlib.suppress(OSError, ValueError):
                seen = json.loads(state.read_text())["world_size"]


def test_a_node_comes_is_lost_and_comes_again(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    job = job_maker(tmp_path)(net="./net.py:Net", epochs=50_000, nodes="1:2", threads=1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said, results, agents = [], [], []
    place = Torchrun(engine="torchrun", head=f"127.0.0.1:{port}")
    owner = JobOwner("0123456789ab", lambda: None)
    waiting = threading.Thread(target=lambda: results.append(train_at(place, job, owner, say=said.append)), daemon=True)
    waiting.start()
    while not said:
        time.sleep(0.1)
    command = said[0].splitlines()[1]
    try:
        agents.append(agent(command))
        until_world_size(job, 1)
        agents.append(agent(command))
        until_world_size(job, 2)
        end(agents[1])
        until_world_size(job, 1)
        agents.append(agent(command))
        until_world_size(job, 2)
        (job.folder / STOP_FILE).touch()
        waiting.join(PATIENCE_S)
        assert agents[0].wait(PATIENCE_S) == agents[2].wait(PATIENCE_S) == 0
    finally:
        for process in agents:
            end(process)
    assert results[0].world_size == 2
    assert len(results[0].resumed_from) >= 3
