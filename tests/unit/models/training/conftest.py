"""Tiny problems on one thread."""

from pathlib import Path

import pytest
import torch

from tests.tiny_jobs import MakeJob, job_maker


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """A function that writes a tiny problem and gives a job for it."""
    return job_maker(tmp_path)
