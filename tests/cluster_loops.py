"""What the tests on all clusters share: their stage, and loops of the penguins with a place of the cluster."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from models.launch import launched
from models.training.job import EpochReport, TrainingJob, TrainingResult
from tasks.ranks.launcher import JobOwner, train_at
from tasks.ranks.launcher_suite import PATIENCE_S
from tests.launcher_contract import Stage
from tests.running import Loopline

ROOT = Path(__file__).parents[1]
LOOP_S = PATIENCE_S + 300
OWNER = JobOwner("0123456789ab", lambda: None)
SUBMIT = """
import pkgutil, sys
from models.training.job import TrainingJob
from tasks.ranks.launcher import JobOwner, train_at

place = pkgutil.resolve_name(sys.argv[1]).model_validate_json(sys.argv[2])
job = TrainingJob.model_validate_json(sys.argv[3], strict=False)
train_at(place, job, JobOwner("0123456789ab", lambda: None), lambda e: print(e.epoch, flush=True) is None)
"""


class OnCluster(Stage):
    """Two nodes of a cluster with a rank each."""

    def __init__(self, cluster: Any, place: Any) -> None:
        self.cluster, self.place = cluster, place
        self.said: list[str] = []

    def train(
        self,
        job: TrainingJob,
        on_epoch: Callable[[EpochReport], bool] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> TrainingResult:
        return train_at(self.place, job, OWNER, on_epoch, say or self.said.append)

    def submitter(self, job: TrainingJob) -> subprocess.Popen[str]:
        kind = f"{type(self.place).__module__}:{type(self.place).__name__}"
        command = [sys.executable, "-c", SUBMIT, kind, self.place.model_dump_json(), job.model_dump_json()]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def ranks(self, job: TrainingJob) -> list[psutil.Process]:
        ranks = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if words[-3:] == [*launched("models.training.node")[1:], str(job.folder)] and "-u" in words:
                    ranks.append(process)
        return ranks

    def placed(self, **train: Any) -> dict[str, Any]:
        return {**train, "nodes": "2", "threads": 1}


def once(epoch: int, act: Callable[[], Any]) -> Callable[[EpochReport], bool]:
    """An `on_epoch` that acts at one epoch."""
    done: list[Any] = []

    def on_epoch(report: EpochReport) -> bool:
        if report.epoch >= epoch and not done:
            done.append(act())
        return True

    return on_epoch


def make_penguins(home: Path, place: dict[str, Any] | None = None, **places: Any) -> None:
    """Make a workspace with the project of the penguins, long to train; its place `cluster` is `place`."""
    project = home / "projects" / "penguins"
    shutil.copytree(ROOT / "projects" / "penguins", project, ignore=shutil.ignore_patterns("data"))
    named = {"cluster": place, **places} if place else places
    if named:
        (home / "places.yaml").write_text(json.dumps(named))


OVERRIDES = ("search.trials=1", "train.epochs=600", "train.threads=1")


def penguins_command(*overrides: str) -> list[str]:
    """Return the command that runs their loop."""
    settings = [word for text in (*OVERRIDES, *overrides) for word in ("-s", text)]
    return [str(Path(sys.executable).with_name("loopline")), "run", "penguins", *settings]


def run_penguins(home: Path, place: dict[str, Any] | None, *overrides: str) -> subprocess.Popen[bytes]:
    """Run the loop of the penguins in a workspace of its own whose place `cluster` is `place`; gives the process."""
    make_penguins(home, place)
    return subprocess.Popen(penguins_command(*overrides), env={**os.environ, "LOOPLINE_HOME": str(home)})


def run_whole(home: Path, place: dict[str, Any] | None, *overrides: str) -> None:
    """Run their loop to its end."""
    loop = run_penguins(home, place, *overrides)
    try:
        assert loop.wait(LOOP_S) == 0
    finally:
        loop.kill()
        loop.wait()


def wait_for_checkpoint(home: Path, is_running: Callable[[], bool] = lambda: True) -> None:
    """Wait until the training of the penguins has written a checkpoint."""
    end = time.monotonic() + LOOP_S
    while not list(home.glob(".loopline/projects/penguins/work/train/*/checkpoints/step-*")):
        assert time.monotonic() < end
        assert is_running()
        time.sleep(0.2)


def assert_one_version_as_if_whole(home: Path, whole: Path) -> None:
    """One version was registered and is the champion, trained to the weights of a loop that nobody disturbed."""
    assert trained(home)["weights_sha256"] == trained(whole)["weights_sha256"]
    assert trained(home)["world_size"] == trained(whole)["world_size"] == 2
    stores = Loopline(home)
    assert (stores.versions("penguins"), stores.aliases("penguins")) == ([1], {"champion": 1})
    tags = [Loopline(at).tags("penguins", 1)["loopline.weights_sha256"] for at in (home, whole)]
    assert tags[0] == tags[1]


def trained(home: Path) -> dict[str, Any]:
    """The result of the only training in a workspace."""
    (path,) = (home / ".loopline/projects/penguins/work/train").glob("*/result.json")
    result: dict[str, Any] = json.loads(path.read_text())
    return result
