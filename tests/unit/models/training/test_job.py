"""A training job as the plain data that a process gets."""

import json
from pathlib import Path

from models.project_spec.blocks import Model
from models.training.job import InitialWeights, TrainingJob
from tests.tiny_jobs import MakeJob


def test_a_job_comes_back_from_its_json(make_job: MakeJob) -> None:
    start = InitialWeights(weights=Path("w.safetensors"), sha256="0", label="file", model=Model(net="mlp"))
    job = make_job(arguments={"hidden": 8}, job={"fold": (1, 3), "chosen": ("batch", "lr"), "start": start})
    plain = job.as_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert TrainingJob.from_json(plain) == job
