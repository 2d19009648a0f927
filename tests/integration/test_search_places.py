"""A search whose trials are jobs of an engine: the same study as on this machine, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import psutil
import pytest

from models.errors import TrainingError
from models.project_spec.block import SpecBlock
from models.training.job import JOB_FILE, STOP_FILE, EpochReport, TrainingJob
from models.training.node import append_progress
from tasks.host.workspace import Project, Workspace
from tasks.loop.lifecycle import open_loop
from tasks.ranks import launcher, places
from tasks.ranks.launcher import Shape, State
from tasks.ranks.rank_pool import RankPool
from tasks.steps import ingest, prepare, search
from tasks.steps.search import TRIALS_FILE
from tests.conftest import MakeProject
from tests.wide import wide

SPEC = """\
search:
  trials: {trials}
  epochs: {epochs}
  workers: {workers}
  on: {on}
  space: {{train.lr: {{low: 0.0001, high: 0.3, log: true}}}}
train: {{epochs: 4, batch: 64, threads: 1}}
model: {{net: mlp, arguments: {{hidden: 4, layers: 1}}}}
"""


class Double(SpecBlock):
    """An engine in this process: each job is trained by children of a fork server, and is lost if one of them dies."""

    engine: Literal["slurm"]
    cpus: int | None = None
    programs: ClassVar[tuple[str, ...]] = ()
    gpus: ClassVar[None] = None
    starts_jobs: ClassVar[bool] = True
    pool: ClassVar[RankPool]
    running: ClassVar[dict[str, threading.Thread]] = {}
    submitted: ClassVar[list[str]] = []
    cancelled: ClassVar[list[str]] = []

    def check(self) -> None:
        """Nothing to judge."""

    def submit(self, key: str, job: Path, shape: Shape) -> str:
        assert shape.nodes == (1, 1)
        task = TrainingJob.model_validate_json((job / JOB_FILE).read_text(), strict=False)
        task = task.model_copy(update={"train": task.train.model_copy(update={"max_restarts": 0})})

        def report(epoch: EpochReport) -> bool:
            append_progress(job, epoch)
            return not (job / STOP_FILE).exists()

        def train() -> None:
            with contextlib.suppress(TrainingError):
                self.pool.run(task, report)

        self.submitted.append(job.name)
        self.running[key] = threading.Thread(target=train)
        self.running[key].start()
        return "submitted"

    def state(self, key: str) -> State:
        return "running" if key in self.running and self.running[key].is_alive() else "ended"

    def cancel(self, key: str) -> None:
        self.cancelled.append(key)


@pytest.fixture
def engine(tracked: Workspace, pool: RankPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Double]]:
    """The double as the place `gpu`."""
    monkeypatch.setitem(places.ENGINES, "slurm", Double)
    monkeypatch.setattr(launcher, "_LOOK_S", 0.05)
    (tracked.root / "places.yaml").write_text("gpu: {engine: slurm}\n")
    Double.pool = pool
    for record in (Double.running, Double.submitted, Double.cancelled):
        record.clear()
    yield Double
    for job in Double.running.values():
        job.join(60)


def searched(project: Project) -> list[dict[str, Any]]:
    """The trials of a search of its own loop."""
    with open_loop(project) as loop:
        ingest.ingest(loop)
        prepare.prepare(loop)
        record, _ = search.search(loop)
        trials: list[dict[str, Any]] = json.loads((loop.place(record) / TRIALS_FILE).read_text())
    return trials


def kill_a_rank(pools: list[RankPool]) -> bool:
    """Kill a process that trains; says whether there was one."""
    for pool in pools:
        server = pool._fork_server
        for child in psutil.Process(server.pid).children() if server else []:
            with contextlib.suppress(psutil.Error):
                child.kill()
                return True
    return False


@pytest.mark.parametrize(
    ("on", "many"),
    [
        ("gpu", 8),
        wide("gpu", 12),
        pytest.param("gpu", 40, marks=pytest.mark.soak),
        pytest.param("here", 40, marks=pytest.mark.soak),
    ],
)
def test_four_workers_finish_each_trial_once_though_workers_are_killed(
    engine: type[Double], make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, on: str, many: int
) -> None:
    project = make_project(spec=SPEC.format(trials=many, epochs=1, workers=4, on=on))
    pools, run, begun, kills, one_kills = [engine.pool], RankPool.run, [], list(range(5, many, 4)), threading.Lock()

    def run_and_be_killed(pool: RankPool, task: TrainingJob, on_epoch: Any = None) -> Any:
        begun.append(task.folder.name)
        if pool not in pools:
            pools.append(pool)

        def kill_now_and_then(epoch: EpochReport) -> bool:
            with one_kills:
                if kills and len(begun) >= kills[0] and kill_a_rank(pools):
                    kills.pop(0)
            return bool(on_epoch(epoch))

        return run(pool, task, kill_now_and_then)

    monkeypatch.setattr(RankPool, "run", run_and_be_killed)
    trials = searched(project)
    assert kills == []
    assert [trial["number"] for trial in trials] == list(range(many))
    assert {trial["state"] for trial in trials} <= {"complete", "pruned"}, "a dead worker's trial is taken up again"
    assert len({trial["params"]["train.lr"] for trial in trials}) == many
    if on == "gpu":
        assert 1 <= len(engine.submitted) - many <= len(range(5, many, 4))


@pytest.mark.wide
def test_one_worker_on_a_place_repeats_the_search_of_this_machine(
    engine: type[Double], make_project: MakeProject
) -> None:
    """Though a job sees late that its trial is pruned: here it always has trained to its end by then."""
    specs = {on: SPEC.format(trials=7, epochs=3, workers=1, on=on) for on in ("here", "gpu")}
    here, there = (searched(make_project(f"on-{on}", spec)) for on, spec in specs.items())
    decided = ("number", "params", "state", "value", "epochs")
    assert [[trial[key] for key in decided] for trial in there] == [[trial[key] for key in decided] for trial in here]
    assert {trial["state"] for trial in there} == {"complete", "pruned"}
    assert len(engine.submitted) == 7
