"""Training on two nodes of a real Slurm."""

import contextlib
import json
import os
import re
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import psutil
import pytest

from models.errors import TrainingError, UsageError
from tasks.host import leases
from tasks.host.object_store import ObjectStore
from tasks.host.store_addresses import OPTUNA_STORAGE, STATE_URL, TRACKING_URI
from tasks.host.store_addresses import ROOT as OBJECTS
from tasks.host.workspace import Workspace
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import PrefectServer
from tasks.ranks.launcher import name_of
from tasks.ranks.launcher_suite import EPOCHS, PATIENCE_S
from tasks.ranks.slurm import LOG, Slurm
from tests.cluster_loops import (
    LOOP_S,
    OnCluster,
    assert_one_version_as_if_whole,
    make_penguins,
    once,
    penguins_command,
    run_penguins,
    trained,
    wait_for_checkpoint,
)
from tests.launcher_contract import LauncherContract
from tests.postgres import is_installed, new_database, postgres
from tests.running import Loopline, eventually, flow_runs
from tests.s3 import BUCKET, s3
from tests.slurm_cluster import HEAD, NODES, processes_of

pytestmark = pytest.mark.timeout(900)

PLACE = {"engine": "slurm", "setup": ["export GLOO_SOCKET_IFNAME=e0"]}


class OnSlurm(OnCluster):
    """Two nodes of Slurm."""

    def __init__(self, cluster, place=None):
        super().__init__(cluster, place or Slurm.model_validate(PLACE))

    def jobs(self, job):
        """Number, state and restarts of the jobs that were submitted for a job's folder."""
        key = re.search(r"--job-name=loopline-([\w-]+)", (job.folder / "slurm.sh").read_text())[1]
        return self.cluster.jobs(name_of(key))


class TestSlurm(LauncherContract):
    @pytest.fixture
    def stage(self, cluster, tmp_path):
        stage = OnSlurm(cluster)
        yield stage
        cluster.run("scancel", "--user=root")
        for log in tmp_path.rglob(LOG):
            print(log.read_text()[-5000:])

    def test_a_killed_submitter_is_replaced_by_the_next(self, stage, job, expected):
        super().test_a_killed_submitter_is_replaced_by_the_next(stage, job, expected)
        assert len(stage.jobs(job())) == 1, "the second attached to the job of the first"

    def test_two_submitters_at_once_train_once(self, stage, job, expected):
        with ThreadPoolExecutor(2) as threads:
            results = list(threads.map(lambda _: stage.train(job()), range(2)))
        assert results[0] == results[1]
        assert results[0].weights_sha256 == expected
        assert results[0].restarts == 0

    def test_a_requeued_job_goes_on_from_its_checkpoint(self, stage, job, expected):
        result = stage.train(job(), once(4, lambda: stage.cluster.requeue(stage.jobs(job())[0][0])))
        assert result.weights_sha256 == expected
        assert result.resumed_from
        assert [restarts for _, _, restarts in stage.jobs(job())] == ["1"]

    def test_the_signal_before_the_time_limit_puts_the_job_back(self, stage, job, expected):
        def limit():
            number = stage.jobs(job())[0][0]
            stage.cluster.run("scancel", "--batch", "--signal=TERM", number)  # what --signal=B:TERM@60 sends
            stage.cluster.start_now(number)

        result = stage.train(job(), once(4, limit))
        assert result.weights_sha256 == expected
        assert result.resumed_from
        assert [restarts for _, _, restarts in stage.jobs(job())] == ["1"]

    def test_a_job_of_a_higher_priority_takes_its_place_for_a_while(self, stage, job, expected):
        def preempt():
            stage.cluster.run("srun", "--partition=urgent", "--nodes=2", "true")
            stage.cluster.start_now(stage.jobs(job())[0][0])

        result = stage.train(job(), once(4, preempt))
        assert result.weights_sha256 == expected
        assert result.resumed_from
        assert [restarts for _, _, restarts in stage.jobs(job())] == ["1"]

    def test_the_controller_may_be_away_meanwhile(self, stage, job, expected):
        stage.place = Slurm.model_validate({**PLACE, "setup": [*PLACE["setup"], "sleep 3"]})

        def back(line):
            stage.said.append(line)
            if "is away" in line:
                stage.cluster.start_controller()

        stage.cluster.kill_controller()
        result = stage.train(job(), once(2, stage.cluster.kill_controller), back)
        assert result.weights_sha256 == expected
        if "slurmctld" not in [process.name() for process in psutil.process_iter()]:
            stage.cluster.start_controller()
        assert len(stage.jobs(job())) == 1
        assert any("is away" in line for line in stage.said)

    def test_a_job_that_slurm_ends_is_an_error_that_names_its_log(self, stage, job):
        with pytest.raises(TrainingError, match="ended without a result: see the log there"):
            stage.train(job(epochs=5000), once(2, lambda: stage.cluster.run("scancel", stage.jobs(job())[0][0])))
        stage.place.check()
        stage.place = Slurm(engine="slurm", partition="a100")
        with pytest.raises(UsageError, match="invalid partition specified: a100"):
            stage.place.check()
        with pytest.raises(UsageError, match="invalid partition specified: a100"):
            stage.train(job("other"))


def test_a_whole_loop_whose_training_is_requeued_ends_with_the_weights_of_one_that_was_not(cluster, whole, tmp_path):
    home = tmp_path / "home"
    loop = run_penguins(home, PLACE, "train.on=cluster", "train.nodes=2")
    try:
        wait_for_checkpoint(home, lambda: loop.poll() is None)
        (job,) = cluster.run("squeue", "-h", "-o", "%i").split()
        cluster.requeue(job)
        assert loop.wait(LOOP_S) == 0
    finally:
        loop.kill()
        loop.wait()
    assert trained(home)["resumed_from"], "it was killed before its first checkpoint, or began anew"
    assert_one_version_as_if_whole(home, whole)
    assert len(trained(home)["epochs"]) > EPOCHS


def test_the_training_of_a_run_that_is_cancelled_when_it_has_no_process_is_cancelled(cluster, tmp_path):
    loop = run_penguins(tmp_path, PLACE, "train.on=cluster", "train.nodes=2", "train.epochs=9000")  # until cancelled
    try:
        wait_for_checkpoint(tmp_path, lambda: loop.poll() is None)
    finally:
        loop.kill()
        loop.wait()
    (job,) = cluster.run("squeue", "-h", "-o", "%i").split()
    api = PrefectServer(Workspace(tmp_path)).api()
    with mock.patch.dict(os.environ):
        ((run, _),) = flow_runs(api, "penguins-", tmp_path).items()
        ask(api, f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}, "force": True})
    assert cluster.job(job)[0] == "RUNNING", "whoever kills a loop does not end its training"
    said = Loopline(tmp_path)("reap").ok().out
    assert "its flow run was cancelled; cancelled its training on cluster too" in said
    assert "its loop is gone; ended" not in said, "the reaper killed the ranks of a job"
    eventually(lambda: not cluster.run("squeue", "-h"))


def submit_loop(cluster, home, folder=".", log="loop.log"):
    """Submit a whole loop as a job of one node, as `docs/how-to/slurm.md` says; gives its number.

    Its workspace is a folder of `home`, which bash expands on the node.
    """
    command = shlex.join(penguins_command("train.ranks=2"))
    script = f"#!/bin/bash\nexport LOOPLINE_HOME={home}/{folder}\nexec {command}\n"
    (home / "loop.sbatch").write_text(script)
    output = f"--output={home}/{log}"
    return cluster.run("sbatch", "--parsable", "--requeue", "--open-mode=append", output, f"{home}/loop.sbatch")


def end_of(cluster, log, job):
    """Wait for a job's end; gives its state and how often it was put back."""
    end = time.monotonic() + LOOP_S
    while (state := cluster.job(job)) and state[0] in ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING"):
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.5)
    return state


def test_a_loop_that_is_a_job_goes_on_when_its_node_is_lost(cluster, whole, tmp_path):
    home = tmp_path / "home"
    make_penguins(home)
    job = submit_loop(cluster, home)
    wait_for_checkpoint(home)
    node = cluster.run("squeue", "-h", "-j", job, "-o", "%N")
    cluster.kill_node(node)
    try:
        cluster.start_now(job)  # Slurm sees the loss after SlurmdTimeout, and puts the job back
        assert end_of(cluster, home / "loop.log", job) == ["COMPLETED", "1"], (home / "loop.log").read_text()
    finally:
        cluster.start_node(node)
        cluster.wait()
    assert trained(home)["resumed_from"], "it was killed before its first checkpoint, or began anew"
    assert_one_version_as_if_whole(home, whole)


def test_a_loop_that_is_a_job_goes_on_after_a_job_of_a_higher_priority(cluster, whole, tmp_path):
    home = tmp_path / "home"
    make_penguins(home)
    job = submit_loop(cluster, home)
    wait_for_checkpoint(home)
    cluster.run("srun", "--partition=urgent", "--nodes=2", "true")
    cluster.start_now(job)
    assert end_of(cluster, home / "loop.log", job) == ["COMPLETED", "1"], (home / "loop.log").read_text()
    assert trained(home)["resumed_from"], "it was killed before its first checkpoint, or began anew"
    assert_one_version_as_if_whole(home, whole)


@pytest.mark.skipif(not is_installed(), reason="Postgres is not installed")
def test_a_loop_whose_node_is_cut_off_is_finished_on_another_and_the_first_one_is_refused(
    cluster, whole, tmp_path, monkeypatch
):
    """The first goes on where slurmctld cannot reach it; neither disk nor process says so to the second."""
    (tmp_path / "cut").mkdir()
    homes = {name: tmp_path / "cut" / name for name in NODES}
    for home in homes.values():
        make_penguins(home)
    with postgres(HEAD) as server, s3(HEAD) as environ:
        environ[OBJECTS] = f"s3://{BUCKET}/cut"
        environ |= {key: new_database(server, key.lower()) for key in (STATE_URL, TRACKING_URI, OPTUNA_STORAGE)}
        for key, value in environ.items():
            monkeypatch.setenv(key, value)
        job = submit_loop(cluster, tmp_path / "cut", "$(hostname)", "%N.log")
        bucket = ObjectStore(environ[OBJECTS])
        eventually(lambda: any("manifests/" in name for name in bucket.listed("projects/penguins/checkpoints/train")))
        first = cluster.run("squeue", "-h", "-j", job, "-o", "%N")
        (second,) = set(NODES) - {first}
        loops = [process for process in processes_of(first) if "run" in process.cmdline()]
        cluster.cut_off(first)
        try:
            state = homes[second] / ".loopline"
            eventually(lambda: not leases.is_leased(state, "loop:penguins"))
            cluster.start_now(job)
            eventually(lambda: leases.is_leased(state, "loop:penguins"))
            assert [process for process in loops if process.is_running()], "the first one goes on"
            cluster.reconnect(first, slurmd_may_act=False)
            assert end_of(cluster, tmp_path / "cut" / f"{second}.log", job) == ["COMPLETED", "1"]
            psutil.wait_procs(loops, LOOP_S)
        finally:
            cluster.reconnect(first)
            cluster.wait()
        said = (tmp_path / "cut" / f"{first}.log").read_text()
        assert "has taken it over; this process ends and records nothing more" in said
        stores = Loopline(homes[second], environ)
        assert (stores.versions("penguins"), stores.aliases("penguins")) == ([1], {"champion": 1})
    assert trained(homes[second])["resumed_from"]
    assert trained(homes[second])["weights_sha256"] == trained(whole)["weights_sha256"]


def kill_trial(cluster):
    """Let Slurm end the job that runs longest; says whether there was one.

    slurmctld 22.05 may crash if a job is cancelled while its `srun` begins.
    """
    jobs = cluster.run("squeue", "-h", "-t", "R", "-o", "%i").split()
    with contextlib.suppress(AssertionError):  # it has just ended
        cluster.run("scancel", min(jobs, key=int, default=""))
        return True
    return False


def kill_node(cluster):
    """Lose a node while two trials run on it, and get it back; says whether there were two."""
    jobs = cluster.run("squeue", "-h", "-t", "R", "-w", NODES[1], "-o", "%i").split()
    if len(jobs) < 2:
        return False
    cluster.kill_node(NODES[1])
    for job in jobs:
        cluster.start_now(job)  # Slurm sees the loss after SlurmdTimeout, and puts the jobs back
    cluster.start_node(NODES[1])
    return True


@pytest.mark.parametrize(
    ("trials", "workers", "epochs", "kills"),
    [(3, 2, 200, {1: kill_trial}), (40, 4, 3, {5: kill_trial, 14: kill_node, 20: kill_trial, 26: kill_trial})],
)
def test_the_trials_of_a_search_are_jobs_and_each_is_finished_once_though_jobs_are_lost(
    cluster, tmp_path, trials, workers, epochs, kills
):
    counts = [f"search.trials={trials}", f"search.workers={workers}", f"search.epochs={epochs}"]
    loop = run_penguins(tmp_path, PLACE, *counts, "search.on=cluster", "search.pruner=none", "train.epochs=5")
    pending, search = sorted(kills.items()), tmp_path / ".loopline/projects/penguins/work/search"
    try:
        end = time.monotonic() + PATIENCE_S + 300
        while loop.poll() is None:
            assert time.monotonic() < end
            begun = {path.parent for path in search.glob("*/trials/*/progress.jsonl")}
            if pending and len(begun) >= pending[0][0] and pending[0][1](cluster):
                pending.pop(0)
            time.sleep(0.2)
        assert loop.returncode == 0
    finally:
        loop.kill()
        loop.wait()
    assert not pending
    logs = [path.read_text() for path in search.glob("*/trials/*/slurm.log")]
    assert any("CANCELLED" in log for log in logs), "no job was lost"
    (path,) = search.glob("*/trials.json")
    assert [(trial["number"], trial["state"]) for trial in json.loads(path.read_text())] == [
        (number, "complete") for number in range(trials)
    ]
