"""Jobs and gangs to train with, and how to run code in other processes at the same time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tasks.runtime.gang import Gang
from tasks.runtime.workspace import Workspace

if TYPE_CHECKING:
    from tests.tiny_jobs import MakeJob

ROOT = Path(__file__).parents[2]
Processes = Callable[..., list[subprocess.CompletedProcess[str]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here talks to a real tool."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.integration)


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """A function that writes a tiny problem and gives a job for it."""
    from tests.tiny_jobs import job_maker  # torch: only for tests that train

    return job_maker(tmp_path)


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    """A warmed gang for all tests of a module."""
    with Gang() as warmed:
        warmed.warm()
        yield warmed


@pytest.fixture
def tracked(workspace: Workspace, empty_store: Path) -> Workspace:
    """The workspace with an initialised tracking store."""
    shutil.copytree(empty_store, workspace.state / "mlflow")
    return workspace


@pytest.fixture
def at_once() -> Iterator[Processes]:
    """Run pieces of Python in processes of their own, all at the same time."""
    running: list[subprocess.Popen[str]] = []

    def run(*codes: str, timeout_s: float = 120) -> list[subprocess.CompletedProcess[str]]:
        running.extend(
            subprocess.Popen(
                [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for code in codes
        )
        done = []
        for process in running:
            out, err = process.communicate(timeout=timeout_s)
            done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        return done

    yield run
    for process in running:
        process.kill()
        process.communicate()
