"""The work of an epoch before it is trained; that it is what the training counts: tests/integration/test_planner.py."""

from pathlib import Path
from typing import Any

import pytest

from models.data.preparation import Preparation
from models.planner import epoch_work
from models.planner.epoch_work import epoch_s
from models.training.job import TrainingJob
from tests.tiny_jobs import job_maker


def as_json(job: TrainingJob, num_train: int) -> dict[str, Any]:
    Preparation.load(job.prepared).model_copy(update={"rows": {"train": num_train}}).save(job.prepared)
    return job.as_json()


def test_it_grows_with_the_rows_that_are_trained_and_with_the_net(tmp_path: Path) -> None:
    make = job_maker(tmp_path)
    narrow, wide = make(batch=100), make(folder="wide", arguments={"hidden": 512}, batch=100)
    one = epoch_s(as_json(narrow, 1000))
    assert epoch_s(as_json(narrow, 2000)) == pytest.approx(2 * one)
    assert epoch_s(as_json(narrow.model_copy(update={"sample": 0.5}), 2000)) == pytest.approx(one)
    assert epoch_s(as_json(wide, 1000)) > one > 0


def test_it_is_nothing_where_the_operations_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_work, "count_flops", lambda *_: None)
    assert epoch_s(as_json(job_maker(tmp_path)(), 1000)) == 0
