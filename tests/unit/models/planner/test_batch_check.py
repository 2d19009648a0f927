"""A batch that cannot fit is refused with one that can."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from models.errors import TrainingError
from models.planner.batch_check import refuse_batch
from tests.tiny_jobs import job_maker
from tests.wide import wide


@pytest.mark.parametrize("train", [wide({}), {"ranks": 2}, wide({"precision": "bf16"})])
def test_the_batch_that_is_named_fits(tmp_path: Path, train: dict[str, Any]) -> None:
    make, net = job_maker(tmp_path), {"net": "mlp", "arguments": {"hidden": 256}}
    message = r"train\.batch: 100,000 examples need .* GB beside .* but this machine's memory is 0\.1 GB: .* \(now 1\)"
    with pytest.raises(TrainingError, match=message) as caught:
        refuse_batch(make(**net, batch=100_000, **train).as_json(), 1e8)
    named = re.search(r"at most about ([\d,]+)", str(caught.value))
    assert named
    fitting = int(named[1].replace(",", ""))
    assert 1000 < fitting < 100_000
    refuse_batch(make(**net, batch=fitting, **train).as_json(), 1e8)


def test_in_parts_or_with_fewer_rows_it_fits(tmp_path: Path) -> None:
    job = job_maker(tmp_path)(net="mlp", arguments={"hidden": 256}, batch=100_000)
    with pytest.raises(TrainingError):
        refuse_batch(job.as_json(), 1e8)
    parts = job.train.model_copy(update={"accumulate": 16})
    refuse_batch(job.model_copy(update={"train": parts}).as_json(), 1e8)
    path = job.prepared / "preparation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rows": {"train": 200}}))
    refuse_batch(job.as_json(), 1e8)


def test_weights_that_leave_no_room_are_said_to_be_too_many(tmp_path: Path) -> None:
    job = job_maker(tmp_path)(net="mlp", arguments={"hidden": 1024, "layers": 4}, batch=64)
    with pytest.raises(TrainingError, match="take a smaller net, or raise"):
        refuse_batch(job.as_json(), 1e7)
