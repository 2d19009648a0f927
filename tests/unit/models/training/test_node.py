import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from models.training import rank
from models.training.job import ERROR_FILE, JOB_FILE, PROGRESS_FILE, STOP_FILE, EpochReport, TrainingResult
from models.training.node import append_progress, main, read_progress
from models.training.rank import run_job
from tests.warm import start_python


@pytest.fixture
def as_rank(monkeypatch):
    """The environment that torchrun gives the only rank of a job."""
    for key, value in {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }.items():  # fmt: skip
        monkeypatch.setenv(key, value)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def submitted(job):
    job.folder.mkdir()
    (job.folder / JOB_FILE).write_text(job.model_dump_json())
    return job.folder


def test_a_rank_writes_progress_and_the_same_result_as_here(make_job, as_rank):
    job = make_job(arguments={"hidden": 8})
    folder = submitted(job)
    assert main(folder) == 0
    assert [epoch.epoch for epoch in read_progress(folder)] == [1, 2, 3]
    result = TrainingResult.model_validate(json.loads((folder / "result.json").read_text()))
    here = run_job(make_job(arguments={"hidden": 8}, folder="here"))
    assert result.weights_sha256 == here.weights_sha256
    assert not (folder / ERROR_FILE).exists()


def test_trees_train_in_one_process(make_job, as_rank):
    folder = submitted(make_job("table", "binary", "trees", {"rounds": 20, "min_data_in_leaf": 5}, epochs=2))
    assert main(folder) == 0
    assert [epoch.epoch for epoch in read_progress(folder)] == [1, 2]
    assert (folder / "trees.txt").exists()


def test_the_file_stop_ends_the_training_after_an_epoch(make_job, as_rank):
    folder = submitted(make_job(arguments={"hidden": 8}))
    (folder / STOP_FILE).touch()
    assert main(folder) == 0
    assert json.loads((folder / "result.json").read_text())["pruned"]


def test_an_error_is_written_and_the_next_start_ends_at_once_without_torch(make_job, as_rank, tmp_path):
    job = make_job(arguments={"no_such_argument": 8})
    folder = submitted(job)
    code = """
import sys
from models.training.node import main
from pathlib import Path
code = main(Path(sys.argv[1]))
assert "torch" not in sys.modules
sys.exit(code)
"""
    root = Path(__file__).parents[4]
    with (tmp_path / "output").open("wb") as output:
        first = start_python(["-m", "models.training.node", str(folder)], dict(os.environ), root, output)
        assert first.wait(60) == 1
    error = json.loads((folder / ERROR_FILE).read_text())
    assert "no_such_argument" in error["text"]
    assert error["traceback"].rstrip().endswith(error["text"].splitlines()[-1])
    again = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, cwd=root, check=False)
    assert (again.returncode, again.stderr) == (1, "")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (
            "NCCL error: invalid usage\nDuplicate GPU detected : rank 1 and rank 0",
            "rank 0: two ranks were given the same",
        ),
        ("NCCL communicator was aborted on rank 1", None),
    ],
)
def test_an_error_of_nccl_that_each_start_would_meet_ends_the_job(make_job, as_rank, monkeypatch, raw, text):
    """It comes with the first message between the ranks, before the training; what a lost peer causes is restarted."""

    def fail(*_):
        raise RuntimeError(raw)

    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr(rank, "settle_choices", fail)
    monkeypatch.setattr(os, "_exit", end)
    folder = submitted(make_job(arguments={"hidden": 8}))
    with pytest.raises(SystemExit, match="1"):
        main(folder)
    torch.distributed.destroy_process_group()
    assert (folder / ERROR_FILE).exists() == (text is not None)
    if text:
        error = json.loads((folder / ERROR_FILE).read_text())
        assert error["text"].startswith(text)
        assert raw in error["text"]


def test_a_torn_line_of_progress_costs_no_other_epoch(tmp_path):
    assert read_progress(tmp_path) == []
    epochs = [EpochReport(epoch=n, epochs=2, values={"val_loss": float("nan")}) for n in (1, 2)]
    append_progress(tmp_path, epochs[0])
    with (tmp_path / PROGRESS_FILE).open("a") as file:
        file.write('\n{"epoch": 2, "epo')
    append_progress(tmp_path, epochs[1])
    assert [epoch.epoch for epoch in read_progress(tmp_path)] == [1, 2]
