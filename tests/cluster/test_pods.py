"""Flow runs in pods of a real Kubernetes, by Prefect's own worker: pods and workers are killed in the middle."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from models.errors import StoreError
from tasks.host.leases import is_leased
from tasks.host.store_addresses import PREFECT_API, STATE_URL
from tasks.host.workspace import Workspace
from tasks.loop.history import lease_of
from tasks.prefect.flow_runs import ask
from tests.cluster_loops import (
    LOOP_S,
    OVERRIDES,
    ROOT,
    assert_one_version_as_if_whole,
    make_penguins,
    run_whole,
    trained,
    wait_for_checkpoint,
)
from tests.kubernetes_cluster import NETWORK, write_kubeconfig
from tests.postgres import is_installed, new_database, postgres
from tests.running import PROGRAM, eventually

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not is_installed(), reason="needs Postgres"),
]
HOST, SECRET = f"{NETWORK}.1", "loopline"


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def program(log, *command, environment):
    """A process that runs as long as the context."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(kubernetes):
    """A Postgres at an address that the pods reach."""
    with postgres(HOST) as address:
        yield address


@pytest.fixture(scope="module")
def api(kubernetes, tmp_path_factory):
    """A Prefect server at an address that the pods reach."""
    folder, port = tmp_path_factory.mktemp("prefect"), free_port()
    start = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    with program(folder / "log", *start, environment={**os.environ, "PREFECT_HOME": str(folder)}):

        def answers():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://{HOST}:{port}/api/health").status == 200

        eventually(answers)
        yield f"http://{HOST}:{port}/api"


@pytest.fixture(scope="module")
def whole(api, tmp_path_factory):
    """The workspace of a loop that nobody disturbs; the Prefect server that is there spares it the start of one."""
    home = tmp_path_factory.mktemp("whole") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PREFECT_API, api)
        run_whole(home, None, "train.ranks=2")
    return home


class Deployed:
    """A workspace with the project of the penguins, whose flow runs are pods."""

    def __init__(self, home, cluster, environment):
        self.home, self.cluster, self.environment = home, cluster, environment

    def module(self, name):
        return program(
            self.home / f"{name}.log", sys.executable, "-m", name, str(self.home), environment=self.environment
        )

    def begin(self, *overrides):
        api = self.environment[PREFECT_API]
        deployment = ask(api, "deployments/name/train/penguins", None, "GET")
        parameters = {"project": "penguins", "overrides": [*OVERRIDES, *overrides]}
        self.run = ask(api, f"deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})["id"]

    def cancel(self):
        """Do what Prefect's page and `prefect flow-run cancel` do."""
        state = {"type": "CANCELLING", "name": "Cancelling"}
        ask(self.environment[PREFECT_API], f"flow_runs/{self.run}/set_state", {"state": state})

    def state(self):
        run = ask(self.environment[PREFECT_API], f"flow_runs/{self.run}", None, "GET")
        return run["state_type"], run["run_count"]

    def pods(self):
        return [
            pod["metadata"]["name"]
            for pod in self.cluster.items("pods", f"--selector=prefect.io/flow-run-id={self.run}")
            if pod["status"]["phase"] in ("Pending", "Running")
        ]

    def end(self):
        """Wait for the end of the run; gives its state and how often it was started."""
        end, state = time.monotonic() + 2 * LOOP_S, ("", 0)
        while state[0] not in ("COMPLETED", "FAILED", "CANCELLED"):
            assert time.monotonic() < end, state
            time.sleep(1)
            with contextlib.suppress(StoreError):  # a server that does not answer in time is asked again
                state = self.state()
        return state


@pytest.fixture(scope="module")
def rights(kubernetes, tmp_path_factory):
    """The kubeconfig of an account that has the rights of infra/kubernetes/pool and no other."""
    path = tmp_path_factory.mktemp("rights") / "kubeconfig"
    kubernetes.kubectl("create", f"--filename={ROOT / 'infra/kubernetes/pool/rights.yaml'}")
    write_kubeconfig(path, kubernetes.kubectl("create", "token", "worker", "--duration=2h"))
    return str(path)


@pytest.fixture
def deployed(kubernetes, server, api, place, rights, tmp_path):
    home = tmp_path / "home"
    state_url = new_database(server, tmp_path.name)
    make_penguins(home, place, pool={**place, "secret": SECRET})
    shutil.copy(kubernetes.kubeconfig, home / "kubeconfig")
    secret = {STATE_URL: state_url, "KUBECONFIG": str(home / "kubeconfig")}  # a loop in a pod submits its training
    words = [f"--from-literal={key}={value}" for key, value in secret.items()]
    kubernetes.kubectl("create", "secret", "generic", SECRET, *words)
    environment = {**os.environ, "LOOPLINE_HOME": str(home), PREFECT_API: api, STATE_URL: state_url}
    subprocess.run([PROGRAM, "deploy", "penguins"], env=environment, cwd=ROOT, check=True)
    environment["KUBECONFIG"] = rights
    there = Deployed(home, kubernetes, environment)
    with there.module("tasks.operations.compact"):
        yield there
    for log in home.glob("*.log"):
        print(log, log.read_text()[-4000:])
    print(kubernetes.kubectl("get", "pods,jobs", "--output=wide"))
    with contextlib.suppress(AssertionError):  # a pod that has no log yet
        print(kubernetes.kubectl("logs", "--selector=prefect.io/flow-run-id", "--prefix", "--tail=60"))
    kubernetes.kubectl("delete", "jobs", "--all", "--cascade=foreground", "--timeout=50s")
    kubernetes.kubectl("delete", "secret", SECRET)


def test_the_pod_of_a_loop_is_deleted_and_the_next_one_attaches_to_its_training(deployed, whole):
    with deployed.module("tasks.prefect.worker"):
        deployed.begin("train.on=cluster", "train.nodes=2")
        wait_for_checkpoint(deployed.home)
        (pod,) = deployed.pods()
        deployed.cluster.kubectl("delete", "pod", pod, "--wait=false")
        assert deployed.end() == ("COMPLETED", 2)
    assert not trained(deployed.home)["resumed_from"], "the ranks in their own pods never stopped"
    assert_one_version_as_if_whole(deployed.home, whole)


def test_a_cancelled_run_ends_with_its_pod_and_its_training(deployed, monkeypatch):
    monkeypatch.setenv(STATE_URL, deployed.environment[STATE_URL])
    state = Workspace(deployed.home).state
    lease = lease_of(state / "projects" / "penguins")
    with deployed.module("tasks.prefect.worker"):
        deployed.begin("train.on=cluster", "train.nodes=2")
        wait_for_checkpoint(deployed.home)
        assert is_leased(state, lease)
        deployed.cancel()
        assert deployed.end() == ("CANCELLED", 1)
    eventually(lambda: not deployed.pods())
    assert not deployed.cluster.items("jobs", "--selector=app.kubernetes.io/managed-by=loopline"), (
        "the training goes on"
    )
    assert not is_leased(state, lease)


def test_the_pod_of_a_loop_is_killed_with_its_ranks(deployed, whole):
    with deployed.module("tasks.prefect.worker"):
        deployed.begin("train.ranks=2")
        wait_for_checkpoint(deployed.home)
        (pod,) = deployed.pods()
        deployed.cluster.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
        assert deployed.end() == ("COMPLETED", 2)
    assert trained(deployed.home)["resumed_from"]
    assert_one_version_as_if_whole(deployed.home, whole)


@pytest.mark.parametrize("is_pod_killed", [False, True])
def test_the_worker_is_killed(deployed, whole, is_pod_killed):
    with deployed.module("tasks.prefect.worker"):
        deployed.begin("train.ranks=2")
        wait_for_checkpoint(deployed.home)
    (pod,) = deployed.pods()
    if is_pod_killed:  # nobody sees it
        deployed.cluster.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
    with deployed.module("tasks.prefect.worker"):
        assert deployed.end() == ("COMPLETED", 1 + is_pod_killed)
    assert bool(trained(deployed.home)["resumed_from"]) is is_pod_killed
    assert_one_version_as_if_whole(deployed.home, whole)
