import json
import os

import pytest

from models.errors import StoreError, UserCodeError
from models.training import rank
from models.training.checkpoints.finished import identity
from models.training.job import RESULT_FILE, WEIGHTS_FILE
from models.training.model_choice import NOISE
from models.training.rank import run_job


def never(epoch):
    raise AssertionError("no work was expected")


def test_what_decides_the_bits_is_recorded(make_job):
    job = make_job(arguments={"hidden": 8})
    result = run_job(job)
    assert json.loads((job.folder / RESULT_FILE).read_text())["weights_sha256"] == result.weights_sha256
    assert {"torch", "threads", "world_size", "optimiser", "precision", "order_version", "job", "seeds"} <= set(
        result.environment
    )
    assert type(result.environment["torch"]) is str
    assert result.environment["worlds"] == [[0, 1, 1]]
    assert result.num_parameters > 100


def test_a_finished_job_does_no_work(make_job):
    job = make_job(arguments={"hidden": 8})
    result = run_job(job)
    times = [(job.folder / name).stat().st_mtime_ns for name in (RESULT_FILE, WEIGHTS_FILE)]
    assert run_job(job, never) == result
    assert times == [(job.folder / name).stat().st_mtime_ns for name in (RESULT_FILE, WEIGHTS_FILE)]


def test_seeds_decide(make_job):
    digests = {
        run_job(make_job(arguments={"hidden": 8}, folder=folder, seed=seed)).weights_sha256
        for folder, seed in (("a", 1), ("b", 1), ("c", 2))
    }
    assert len(digests) == 2


def test_an_own_metric_decides(make_job, tmp_path):
    (tmp_path / "own.py").write_text(
        "def worst(target, prediction):\n    return float(abs(target - prediction).max())\n"
    )
    job = make_job(arguments={"hidden": 8})
    job = job.model_copy(update={"metric": "./own.py:worst", "direction": "minimize"})
    result = run_job(job)
    assert result.value == result.epochs[result.best_epoch - 1]["val_worst"]
    best = min(result.epochs, key=lambda epoch: epoch["val_worst"])
    assert result.value <= best["val_worst"] + NOISE * best["val_worst_se"]


def test_an_own_metric_that_raises_is_told(make_job, tmp_path):
    (tmp_path / "own.py").write_text("def bad(target, prediction):\n    raise RuntimeError('nope')\n")
    job = make_job(arguments={"hidden": 8}).model_copy(update={"metric": "./own.py:bad"})
    with pytest.raises(UserCodeError, match="nope"):
        run_job(job)


def test_a_folder_that_cannot_be_made_is_told(make_job, tmp_path, monkeypatch):
    import pathlib

    job = make_job(arguments={"hidden": 8})

    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
    with pytest.raises(StoreError, match="this user may not read or write it"):
        run_job(job)


def test_settings_of_nccl_reach_the_rank_and_the_record(make_job, monkeypatch):
    """They must be in the environment before the group begins; here the rendezvous stops it just before."""
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_P2P_DISABLE"):
        monkeypatch.setenv(name, "")  # taken back afterwards
    monkeypatch.setenv("NCCL_DEBUG", "WARN")  # of the shell: those of the spec stand above it
    job = make_job(nccl={"NCCL_SOCKET_IFNAME": "eth0", "NCCL_P2P_DISABLE": 1}, epochs=1)
    effective = {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_P2P_DISABLE": "1"}
    recorded = run_job(job).environment["nccl_settings"]
    assert {name: value for name, value in recorded.items() if name in effective} == effective
    assert identity(job) == identity(make_job(epochs=1))
    seen = {}

    def init(*_, **__):
        seen.update({name: os.environ.get(name) for name in effective})
        raise StoreError("far enough")

    monkeypatch.setattr(rank, "rendezvous", lambda *_, **__: iter([(None, 0, 1)]))
    monkeypatch.setattr(rank.torch.distributed, "init_process_group", init)
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    with pytest.raises(StoreError, match="far enough"):
        rank.join_world(job, lambda *_: None)
    assert seen == effective
