"""Tiny jobs for launchers."""

from pathlib import Path

import pytest

from tests.tiny_jobs import MakeJob, job_maker


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """A function that writes a tiny problem and gives a job for it."""
    return job_maker(tmp_path)
