"""A machine is lost in the middle of a training: another machine of the workspace takes its flow run up and ends it.

Each machine is a namespace of host names and processes, with a worker and a compactor. They share the folder, Postgres
and a Prefect server elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tasks.host.store_addresses import STATE_URL
from tasks.prefect.flow_runs import WORKER_LABEL, ask
from tests.fault.aftermath import assert_as_if_whole
from tests.fault.conftest import TWO_RANKS
from tests.postgres import is_installed, new_database, postgres
from tests.running import PROGRAM, Loopline, eventually

pytestmark = [
    pytest.mark.fault,
    pytest.mark.soak,
    pytest.mark.postgres,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not is_installed() or os.geteuid() != 0, reason="needs Postgres, and root for namespaces"),
]
ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def machine(name: str, home: Loopline) -> Iterator[subprocess.Popen[bytes]]:
    """A machine that works for the workspace; the end of its first process ends all of its processes."""
    modules = ("tasks.operations.compact", "tasks.prefect.worker")
    services = " & ".join(f'"{sys.executable}" -m {module} "{home.home}"' for module in modules)
    script = f'hostname {name}; eval "$({PROGRAM} env)"; {services} & wait'
    command = ["unshare", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child", "sh", "-c", script]
    log = home.home.with_name(f"{name}.log").open("wb")
    process = subprocess.Popen(command, env=home.environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


def lose(process: subprocess.Popen[bytes]) -> None:
    """Kill the first process of a machine's namespace: the kernel kills all others at once."""
    (first,) = psutil.Process(process.pid).children()
    first.send_signal(signal.SIGKILL)
    process.wait()


def test_another_machine_ends_the_run_of_a_lost_one(make_home, whole_on_two_ranks: Loopline, api: str):
    with postgres() as server:
        home = make_home("lost", TWO_RANKS)
        home.environ[STATE_URL] = new_database(server, "lost")
        home("deploy", "lost").ok()
        with machine("one", home) as one, machine("two", home) as two:
            deployment = ask(api, "deployments/name/train/lost", None, "GET")
            run = ask(api, f"deployments/{deployment['id']}/create_flow_run", {})["id"]

            def state() -> dict[str, object]:
                return ask(api, f"flow_runs/{run}", None, "GET")

            eventually(lambda: "search" in {record["step"] for record in home.records("lost").values()})
            carrier = str(state()["labels"][WORKER_LABEL])
            lose(one if carrier.startswith("one-") else two)
            eventually(lambda: state()["state_type"] == "SCHEDULED" or state()["run_count"] > 1)
            eventually(lambda: state()["state_type"] in ("COMPLETED", "FAILED", "CRASHED"))
            assert state()["state_type"] == "COMPLETED"
            assert str(state()["labels"][WORKER_LABEL]) != carrier
        assert_as_if_whole(home, "lost", whole_on_two_ranks)
