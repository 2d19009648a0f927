import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from models.errors import UsageError
from tasks.host import processes
from tasks.prefect.flow_runs import FLOW_RUN
from tasks.ranks.launcher import SchedulerAwayError, Shape
from tasks.ranks.slurm import LOG, SCRIPT, Slurm

ROOT = Path(__file__).parents[4]
SHAPE = Shape((2, 2), 4, 1, 3)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Programs of Slurm that answer with what a test says, and write down how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def program(name, answer="", error="", code=0):
        path = folder / name
        path.write_text(
            f"#!/bin/sh\necho {name} \"$@\" >> {folder}/calls\necho '{answer}'\necho '{error}' >&2\nexit {code}\n"
        )
        path.chmod(0o755)
        return folder / "calls"

    return program


def test_the_script_is_as_the_template_in_infra():
    place = Slurm(
        engine="slurm", partition="a100", account="ml", time="12:00:00", cpus=32, options=["--gres=gpu:8"],
        setup=["module load cuda", "export NCCL_SOCKET_IFNAME=ib0"],
    )  # fmt: skip
    written = place.script("0123456789abcdef", Path("/shared/job"), Shape((2, 2), 8, 4, 3))
    template = (ROOT / "infra" / "slurm" / "job.sbatch").read_text()
    assert template == written.replace(sys.executable, "/shared/loopline/.venv/bin/python").replace(
        str(ROOT), "/shared/loopline"
    )


def test_a_job_is_submitted_by_its_script(fake, tmp_path):
    calls = fake("sbatch", "17;cluster")
    said = Slurm(engine="slurm").submit("0123", tmp_path, SHAPE)
    assert "job 17, loopline-0123" in said
    assert str(tmp_path / LOG) in said
    first, *options, last = calls.read_text().split()[1:]
    assert (first, last) == ("--parsable", str(tmp_path / SCRIPT))
    assert {"--job-name=loopline-0123", "--dependency=singleton", "--requeue"} <= set(options)
    script = (tmp_path / SCRIPT).read_text()
    assert '--nnodes="$SLURM_NNODES" --nproc-per-node=4 --max-restarts=3' in script
    assert "#SBATCH --cpus-per-task=4\n" in script
    assert "#SBATCH --dependency=singleton\n" in script


def test_more_nodes_when_there_are_more_and_odd_folders(tmp_path):
    folder = tmp_path / "100% mine"
    script = Slurm(engine="slurm", cpus=6).script("0123", folder, Shape((1, 4), 2, 1, 0))
    assert "#SBATCH --nodes=1-4\n" in script
    assert "#SBATCH --cpus-per-task=6\n" in script
    assert f"/models/launch.py models.training.node '{folder}' &" in script


def test_the_log_is_in_the_folder_whatever_its_name(fake, tmp_path):
    folder = tmp_path / '100% "mine"'
    folder.mkdir()
    calls = fake("sbatch", "17")
    Slurm(engine="slurm").submit("0123", folder, SHAPE)
    assert f'--output={tmp_path}/100%% "mine"/slurm.log' in calls.read_text()


@pytest.mark.parametrize(
    "option",
    ["--job-name=mine", "--job=mine", "--dependency=afterok:3", "--array=0-3", "--wait", "--nodes=5", "--clusters all"],
)
def test_options_that_lose_the_job_are_refused(option):
    with pytest.raises(ValidationError, match=f"another option than {option}: Loopline sets"):
        Slurm(engine="slurm", options=["--gres=gpu:8", option])


def test_options_of_the_site_are_taken():
    options = ["--gres=gpu:8", "--exclusive", "--mem=10G", "--nodelist=n1", "--wait-all-nodes=1", "--time-min=5"]
    assert Slurm(engine="slurm", options=options).options == options


def test_variables_of_an_allocation_and_of_squeue_stay_here(fake, tmp_path, monkeypatch):
    """With SLURM_MEM_PER_CPU of an allocation srun ended at once; with SQUEUE_USERS a running job was not seen.

    With a loop's mark the reaper of a machine that is also a node killed the ranks of a job whose loop was killed.
    """
    names = {"SQUEUE_USERS", "SLURM_MEM_PER_CPU", "SLURM_NTASKS", "SBATCH_WAIT", "SBATCH_CLUSTERS"}
    names |= {processes.OWNER, FLOW_RUN}
    stay = {"SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_QOS", "PREFECT_API_URL"}
    for name in names | stay:
        monkeypatch.setenv(name, "1")
    fake("sbatch", "17")
    (tmp_path / "bin" / "sbatch").write_text(f"#!/bin/sh\nenv > {tmp_path}/env\necho 17\n")
    Slurm(engine="slurm").submit("0123", tmp_path, SHAPE)
    inherited = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert stay <= inherited
    assert not names & inherited


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("", "ended"), ("PENDING", "queued"), ("RUNNING", "running"), ("COMPLETING", "ending"), ("TIMEOUT", "ended"),
        ("COMPLETED\nPENDING", "queued"), ("CANCELLED\nFAILED", "ended"), ("PENDING\nRUNNING", "running"),
    ],
)  # fmt: skip
def test_states(fake, answer, state):
    calls = fake("squeue", answer)
    assert Slurm(engine="slurm").state("0123") == state
    assert "--name=loopline-0123" in calls.read_text()


@pytest.mark.parametrize(
    "away",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
        "Batch job submission failed: Resource temporarily unavailable",
        "squeue: error: Munge encode failed: Failed to access munge.socket.2",
        "slurm_load_jobs error: Protocol authentication error",
    ],
)
def test_a_controller_that_is_away_is_no_answer(fake, tmp_path, away):
    fake("squeue", error=away, code=1)
    fake("sbatch", error=away, code=1)
    assert Slurm(engine="slurm").state("0123") == "unknown"
    with pytest.raises(SchedulerAwayError, match="Slurm is away"):
        Slurm(engine="slurm").submit("0123", tmp_path, SHAPE)


def test_what_slurm_refuses_and_missing_programs_are_errors_with_a_cure(fake, tmp_path, monkeypatch):
    fake("sbatch", error="sbatch: error: invalid partition specified: a100", code=1)
    with pytest.raises(UsageError, match=r"invalid partition specified: a100: correct places\.yaml"):
        Slurm(engine="slurm").submit("0123", tmp_path, SHAPE)
    calls = fake("scancel")
    Slurm(engine="slurm").cancel("0123")
    assert calls.read_text().endswith("scancel --name=loopline-0123\n")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="scancel: no such program"):
        Slurm(engine="slurm").cancel("0123")


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        (["--gres=gpu:8"], 8),
        (["--mem=8G", "--gres=gpu:a100:4"], 4),
        (["--gres=shard:2,gpu:h100:2"], 2),
        (["--gres=gpu"], 1),
        (["--gpus-per-node=h100:8"], 8),
        (["--gpus-per-node=2"], 2),
        (["--gres=gpumem:40"], None),
        (["--gpus=16"], None),
        ([], None),
    ],
)
def test_the_gpus_of_a_node_are_read_from_its_options(options, gpus):
    assert Slurm(engine="slurm", options=options).gpus == gpus
