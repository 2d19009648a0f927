"""What a job leaves open is chosen once, kept, and no part of its identity."""

import pytest
import torch

from models.distributed.world import World
from models.errors import UsageError
from models.files import read_json, write_json
from models.training import choices
from models.training.checkpoints.finished import identity
from models.training.choices import reasons, settle_choices, with_choices
from models.training.job import CHOICES_FILE
from models.training.rank import run_job
from tests.tiny_jobs import MakeJob

GPU = World(device=torch.device("cuda"))


def test_a_cpu_trains_in_fp32_and_the_result_says_why(make_job: MakeJob) -> None:
    job = make_job(epochs=1)
    assert job.train.precision == "auto"
    result = run_job(job)
    assert result.environment["precision"] == "fp32"
    assert result.environment["chosen"]["precision"] == "fp32 (on a CPU)"
    assert result.weights_sha256 == run_job(make_job(epochs=1, folder="named", precision="fp32")).weights_sha256


def test_a_choice_is_no_part_of_the_identity(make_job: MakeJob) -> None:
    job = make_job()
    assert identity(with_choices(job, World())) == identity(job)
    assert identity(make_job(precision="fp32")) != identity(job)


def test_a_resumed_job_keeps_the_choice_of_another_machine(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job()
    monkeypatch.setattr(choices, "precision_for", lambda *_: ("bf16", "the GPU computes it"))
    assert settle_choices(job, GPU).train.precision == "bf16"
    monkeypatch.undo()
    assert settle_choices(job, World()).train.precision == "bf16"
    assert reasons(job.folder)["precision"] == "bf16 (the GPU computes it)"
    assert settle_choices(make_job(folder="other"), World()).train.precision == "fp32"


def test_fp16_of_a_gpu_does_not_go_on_without_one(make_job: MakeJob) -> None:
    job = make_job()
    write_json(job.folder / CHOICES_FILE, {"precision": {"value": "fp16", "why": "Tesla T4 has no bf16"}})
    with pytest.raises(UsageError, match="was begun in fp16 on a GPU, and this machine has none: run it again where"):
        settle_choices(job, World())


@pytest.mark.parametrize(("net", "why"), [("trees", "LightGBM's GPU build"), ("linear", "few passes over all rows")])
def test_a_fit_says_why_a_gpu_is_not_used(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, net: str, why: str
) -> None:
    assert run_job(make_job(net=net, folder="without")).environment["chosen"] == {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    chosen = run_job(make_job(net=net, folder="with")).environment["chosen"]
    assert chosen["device"].startswith("cpu (")
    assert why in chosen["device"]


def test_a_named_precision_is_no_choice(make_job: MakeJob) -> None:
    job = make_job(precision="bf16", compile=False)
    assert settle_choices(job, World()) is job
    assert not read_json(job.folder / CHOICES_FILE)
