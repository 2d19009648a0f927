"""Training on ten times the rows takes the same memory: the peak of a process of its own, by the kernel's count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.data.tensor_file import RowWriter
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Model, Train
from models.training.job import TrainingJob
from tests.conftest import Processes

COLUMNS = 100
ROWS = 25_000
TRAIN = """
from pathlib import Path
from models.training.job import TrainingJob
from models.training.rank import run_job
job = TrainingJob.model_validate_json(Path("job.json").read_text())
Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
run_job(job)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def job(folder: Path, rows: int, memory_mb: int) -> TrainingJob:
    folder.mkdir()
    Preparation(
        kind="table",
        task="binary",
        target=TargetEncoding(name="y", classes=["no", "yes"], shift=0.0, scale=1.0),
        inputs=[NumericInput(name=f"x{i}", fill=0.0) for i in range(COLUMNS)],
    ).save(folder)
    rng = np.random.default_rng(0)
    layout = {"numeric": (np.float32, COLUMNS), "categorical": (np.int32, 0), "target": (np.int64, None)}
    for side, count in (("train", rows), ("validation", 1000)):
        shapes = {
            name: (np.dtype(kind), (count,) if width is None else (count, width))
            for name, (kind, width) in layout.items()
        }
        with RowWriter(folder / f"{side}.safetensors", shapes) as writer:
            for start in range(0, count, 1000):
                numeric = rng.normal(size=(1000, COLUMNS)).astype(np.float32)
                writer.put(start, {"numeric": numeric, "target": (numeric[:, 0] > 0).astype(np.int64)})
    return TrainingJob(
        folder=folder / "job",
        prepared=folder,
        tensors={side: folder / f"{side}.safetensors" for side in ("train", "validation")},
        project=folder,
        model=Model(net="mlp", arguments={"hidden": 8, "layers": 1}),
        train=Train(epochs=1, batch=1000, memory_mb=memory_mb),
        metric="accuracy",
        direction="maximize",
        checkpoints=False,
    )


def peak_mb(job: TrainingJob, at_once: Processes) -> float:
    (job.prepared / "job.json").write_text(job.model_dump_json())
    (done,) = at_once(TRAIN, cwd=job.prepared)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc to forget a peak")
def test_memory_stays_flat_as_the_table_grows(tmp_path: Path, at_once: Processes) -> None:
    """10 MB of rows against 100 MB, of which 8 MB may be held; mapped whole, all 100 MB come to lie in memory."""
    small, large, mapped = (
        peak_mb(job(tmp_path / name, rows, memory_mb), at_once)
        for name, rows, memory_mb in (("small", ROWS, 8), ("large", 10 * ROWS, 8), ("mapped", 10 * ROWS, 1024))
    )
    assert large - small < 15
    assert mapped - small > 60
