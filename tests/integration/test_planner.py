"""What the planner reckons against what a process really held: resident memory, all of it."""

import json
import textwrap
from pathlib import Path

import pytest

from models.data.preparation import Preparation
from models.nets.sizes import Sizes
from models.planner.candidates import Candidate
from models.planner.memory import TrainingShape, memory_of
from models.planner.profile import Profiler
from models.training.job import TrainingJob
from tests.integration.conftest import Processes

ARGUMENTS = {"hidden": 3072, "layers": 4}

TRAINED = """
    import json
    import torch
    from models.training.costs.counters import peak_memory_mb, reset_peak
    from models.training.job import TrainingJob
    from models.training.rank import run_job

    small, large = (TrainingJob.model_validate_json(text, strict=False) for text in json.load(open("jobs.json")))
    run_job(small)  # imports, threads and kernels are there before the look
    cpu = torch.device("cpu")
    reset_peak(cpu)
    before = peak_memory_mb(cpu)
    result = run_job(large)
    print(json.dumps([before, peak_memory_mb(cpu), result.costs.peak_memory_mb, result.num_parameters]))
"""


def trained(small: TrainingJob, large: TrainingJob, folder: Path, at_once: Processes) -> list[float]:
    (folder / "jobs.json").write_text(json.dumps([small.model_dump_json(), large.model_dump_json()]))
    (done,) = at_once(textwrap.dedent(TRAINED), cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def reckoned_mb(job: TrainingJob) -> float:
    profiler = Profiler(job.model, Sizes.of(Preparation.load(job.prepared)), job.project)
    training = TrainingShape.of(job.train, on_cpu=True)
    return memory_of(profiler, Candidate.of(job.train), training, exact=True).total / 1e6


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc to forget a peak")
def test_a_process_holds_what_was_reckoned(make_job, tmp_path, at_once):
    """28 million parameters: 450 MB of weights, gradients and state, and the best weights kept beside them."""
    settings = {"epochs": 2, "batch": 64, "async_checkpoints": False, "job": {"checkpoints": False}}
    small = make_job(folder="small", arguments={"hidden": 8}, **settings)
    large = make_job(folder="large", arguments=ARGUMENTS, **settings)
    before, peak, reported, parameters = trained(small, large, tmp_path, at_once)
    assert parameters > 28e6
    assert reported == pytest.approx(peak, rel=0.05), "what the job says of itself"
    assert peak - before == pytest.approx(reckoned_mb(large), rel=0.1)
