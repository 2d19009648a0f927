"""What a backtest makes is made once: a model goes by the rows it was given and the settings, and by nothing later."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.backtest.periods import Period, PeriodRule, RowRange, TimeOrderedRows, in_time_order
from models.backtest.replay import TrainingOutcome
from models.data.preparation import ClassHead
from models.export.export import export
from models.judge.verdict import Estimate
from models.planner.batch_check import refuse_batch
from models.project_spec.reader import read_spec
from models.training.job import TrainingJob, TrainingResult
from models.training.rank import run_job
from tasks.host.workspace import Project, Workspace
from tasks.loop import jobs
from tasks.loop.loop import SilentReporter
from tasks.operations.backtest_cache import BacktestCache, Promise, ReplayProgress
from tasks.ranks.rank_pool import OnEpoch

KNOWN = 300
SPEC = """\
data: {source: x.csv, target: y, split: {by: time, column: t}}
model: {net: trees}
train: {epochs: 5}
judge: {min_samples: 30}
monitor: {window: 100, min_labels: 50, alarms: 1, of: 1}
"""


REFUSE_BATCH = "models.planner.batch_check:refuse_batch"


class HereGang:
    """Runs jobs in this process: the same code, without a child."""

    def __init__(self) -> None:
        self.jobs: list[TrainingJob] = []

    def run(self, job: TrainingJob, on_epoch: OnEpoch | None = None) -> TrainingResult:
        self.jobs.append(job)
        return run_job(job, on_epoch)

    def call(self, reference: str, **keywords: Any) -> Any:
        return {"models.export.export:export": export, REFUSE_BATCH: refuse_batch}[reference](**keywords)


def rows(changed: int | None = None) -> pa.Table:
    """Six hundred rows; `changed` is one whose number is another and whose class is turned."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=600), random.normal(0, 0.5, 600)
    late = x + y > 0
    if changed is not None:
        x[changed] += 1.0
        late[changed] = not late[changed]
    return pa.table({"t": np.arange(600), "x": x, "y": np.where(late, "yes", "no")})


class First(NamedTuple):
    """The first model of a project, and the workspace that has it."""

    root: Path
    trained: TrainingOutcome
    num_jobs: int


def project_in(root: Path) -> Project:
    workspace = Workspace(root)
    workspace.make()
    return Project(workspace, root / "projects" / "tiny")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    root = tmp_path_factory.mktemp("rehearsal")
    project = project_in(root)
    project.folder.mkdir(parents=True)
    project.spec_path.write_text(SPEC)
    here, pool = world(project)
    return First(root, here.train(RowRange(0, KNOWN), None, None), len(pool.jobs))


@pytest.fixture
def project(tmp_path: Path, first: First) -> Project:
    """A copy of the project with its first model."""
    shutil.copytree(first.root, tmp_path, dirs_exist_ok=True)
    return project_in(tmp_path)


def past_of(project: Project, table: pa.Table) -> TimeOrderedRows:
    return in_time_order(table, read_spec(project.spec_path).data, PeriodRule(rows=100))


def world(project: Project, table: pa.Table | None = None, *overrides: str) -> tuple[BacktestCache, HereGang]:
    pool, spec = HereGang(), read_spec(project.spec_path, overrides)
    progress = ReplayProgress(SilentReporter(), [], 1)
    past = past_of(project, rows() if table is None else table)
    return BacktestCache(project, spec, past, pool, progress), pool  # type: ignore[arg-type]


def test_a_model_is_trained_once_and_found_by_the_next_run(project: Project, first: First):
    assert (first.trained.failure, first.num_jobs) == ("", 1)
    assert first.trained.device_seconds > 0
    again, idle = world(project)
    assert again.train(RowRange(0, KNOWN), None, None) == first.trained
    assert (idle.jobs, again.reused) == ([], 1)


def test_a_model_that_was_tampered_with_is_made_again(project: Project, first: First):
    model = next((project.state("tiny") / "backtest" / "models").glob("*/model.onnx"))
    whole = model.read_bytes()
    model.write_bytes(whole[:-9])
    again, pool = world(project)
    assert again.train(RowRange(0, KNOWN), None, None).model == first.trained.model
    assert len(pool.jobs) == 1
    assert model.read_bytes() == whole


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=st.integers(0, 599), start=st.integers(0, KNOWN - 1))
def test_rows_given_change_what_a_model_goes_by_and_others_do_not(project: Project, changed: int, start: int):
    plain, other = past_of(project, rows()), past_of(project, rows(changed))
    inside = start <= changed < KNOWN
    assert (plain.digest(RowRange(start, KNOWN)) != other.digest(RowRange(start, KNOWN))) is inside


def test_a_future_that_differs_changes_neither_model_nor_verdict_nor_what_was_watched(project: Project):
    told = []
    for table in (rows(), rows(changed=KNOWN + 150)):
        here, pool = world(project, table)
        model = here.train(RowRange(0, KNOWN), None, None).model
        verdict = here.judge(model, None)
        period = Period("p", 300.0, 400.0, KNOWN, KNOWN + 100)
        here.predict(model, period)
        told.append((model, verdict, here.monitor(model, period, period, KNOWN + 100), len(pool.jobs)))
    assert told[0][:3] == told[1][:3]
    assert [each[3] for each in told] == [0, 0], "both found the first model"


def test_settings_tell_models_apart_but_the_policy_and_the_judge_do_not(project: Project, first: First):
    key = first.trained.model
    other, pool = world(project, None, "train.epochs=6")
    assert other.train(RowRange(0, KNOWN), None, None).model != key
    assert len(pool.jobs) == 1
    same, idle = world(project, None, "judge.margin=0.1", "retrain.on=[decay]", "monitor.window=200")
    assert same.train(RowRange(0, KNOWN), None, None).model == key
    assert idle.jobs == []


def test_the_newest_training_rows_tell_models_apart_and_leave_the_test_rows(project: Project):
    here, pool = world(project)
    models = {here.train(RowRange(0, KNOWN), newest, None).model for newest in (None, 150)}
    assert len(models) == 2
    assert [
        here.preparation(model).rows for model in sorted(models, key=lambda key: here.preparation(key).rows["train"])
    ] == [
        {"train": 150, "validation": 45, "test": 45},
        {"train": 210, "validation": 45, "test": 45},
    ]
    assert len(pool.jobs) == 1, "the other is the first model"


def test_rows_that_cannot_be_trained_on_are_a_failure_not_an_error(project: Project):
    here, _ = world(project)
    assert "rows" in here.train(RowRange(0, 5), None, None).failure


def test_a_batch_that_cannot_fit_is_a_failure_before_any_training(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs, "usable_memory", lambda: 1e4)
    monkeypatch.setattr(jobs, "usable_gpus", lambda _: 0)
    here, pool = world(project, None, "model.net=mlp", "train.batch=100000")
    assert here.train(RowRange(0, KNOWN), None, None).failure.startswith("train.batch: ")
    assert pool.jobs == []


def test_what_was_not_used_for_long_goes(project: Project, first: First):
    here, _ = world(project)
    here.verdict(first.trained.model, None)
    later, _ = world(project)
    later.train(RowRange(0, KNOWN), None, None)
    later.prune(older_than_s=-1)
    folder = project.state("tiny") / "backtest"
    assert len(list((folder / "models").iterdir())) == 1
    assert list((folder / "verdicts").iterdir()) == []


class Heard(SilentReporter):
    def __init__(self) -> None:
        self.told: list[tuple[int, int, str]] = []

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        self.told.append((count, total, detail))


def test_progress_counts_the_periods_of_all_policies_and_reckons_by_the_latest_training():
    heard = Heard()
    progress = ReplayProgress(heard, [100, 200, 400], total=4)
    progress.policy = "monthly"
    progress.training(RowRange(0, 100))
    progress.trained(RowRange(0, 100), 10.0)
    progress.period(Period("2020-02", 0.0, 1.0, 100, 200))
    assert heard.told == [
        (0, 4, "monthly training on 100 rows"),
        (1, 4, "monthly 2020-02, at most about 60 s of training left"),
    ]
    progress.trained(RowRange(0, 200), 2.0)
    progress.period(Period("2020-03", 1.0, 2.0, 200, 300))
    assert heard.told[-1] == (2, 4, "monthly 2020-03, at most about 4 s of training left")
    progress.trained(RowRange(0, 400), 4.0)
    progress.period(Period("2020-04", 1.0, 2.0, 200, 300))
    assert heard.told[-1] == (3, 4, "monthly 2020-04")


def test_past_windows_are_assessed_as_live_ones_are(project: Project, first: First):
    """By the model's own decision, which its verdict saw, and without columns that are never logged."""
    here, _ = world(project, None, "goal.metric=accuracy", "serve.log.redact=[x]")
    model = first.trained.model
    head = ClassHead(threshold=0.2)
    here._loaded[model] = here.preparation(model).model_copy(update={"class_head": head})
    here._promised[model] = Promise(Estimate(value=0.9), {}, None)
    rules = here._watched(model)
    assert rules.metric.value(np.array([1, 0]), np.array([0.3, 0.1])) == 1.0
    assert rules.reference is not None
    assert "x" not in [column.name for column in rules.reference.columns]
