"""What a backtest makes is made once: a model goes by the rows it was given and the settings, and by nothing later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.export.export import export
from models.retrain.ordered import Ordered, in_time_order
from models.retrain.periods import Cut, Period, Rows
from models.specfile import read_spec
from models.training.job import Job, Result
from models.training.rank import run_job
from tasks.runtime.loop import Silent
from tasks.runtime.rehearsal import Rehearsal
from tasks.runtime.replay_progress import Progress
from tasks.runtime.workspace import Project, Workspace

KNOWN = 300
SPEC = """\
data: {source: x.csv, target: y, split: {by: time, column: t}}
model: {net: trees}
train: {epochs: 5}
judge: {min_samples: 30}
watch: {window: 100, min_labels: 50, alarms: 1, of: 1}
"""


class HereGang:
    """Runs jobs in this process: the same code, without a child."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def run(self, job: Job) -> Result:
        self.jobs.append(job)
        return run_job(job)

    def call(self, reference: str, **keywords: Any) -> Any:
        assert reference == "models.export.export:export"
        return export(**keywords)


def rows(changed: int | None = None) -> pa.Table:
    """Six hundred rows; `changed` is one whose number is another and whose class is turned."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=600), random.normal(0, 0.5, 600)
    late = x + y > 0
    if changed is not None:
        x[changed] += 1.0
        late[changed] = not late[changed]
    return pa.table({"t": np.arange(600), "x": x, "y": np.where(late, "yes", "no")})


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "projects" / "tiny"
    folder.mkdir(parents=True)
    (folder / "project.yaml").write_text(SPEC)
    workspace = Workspace(tmp_path)
    workspace.make()
    return Project(workspace, folder)


def past_of(project: Project, table: pa.Table) -> Ordered:
    return in_time_order(table, read_spec(project.spec_path).data, Cut(rows=100))


def world(project: Project, table: pa.Table | None = None, *overrides: str) -> tuple[Rehearsal, HereGang]:
    gang, spec = HereGang(), read_spec(project.spec_path, overrides)
    progress = Progress(Silent(), [], 1, 1)
    past = past_of(project, rows() if table is None else table)
    return Rehearsal(project, spec, past, gang, progress), gang  # type: ignore[arg-type]


def test_a_model_is_trained_once_and_found_by_the_next_run(project: Project):
    first, gang = world(project)
    trained = first.train(Rows(0, KNOWN), None, None)
    assert (trained.failure, len(gang.jobs)) == ("", 1)
    assert trained.device_seconds > 0
    again, idle = world(project)
    assert again.train(Rows(0, KNOWN), None, None) == trained
    assert (idle.jobs, again.counts.found) == ([], 1)


def test_a_model_that_was_tampered_with_is_made_again(project: Project):
    first, _ = world(project)
    key = first.train(Rows(0, KNOWN), None, None).model
    model = next((project.state("tiny") / "backtest" / "models").glob("*/model.onnx"))
    whole = model.read_bytes()
    model.write_bytes(whole[:-9])
    again, gang = world(project)
    assert again.train(Rows(0, KNOWN), None, None).model == key
    assert len(gang.jobs) == 1
    assert model.read_bytes() == whole


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=st.integers(0, 599), first=st.integers(0, KNOWN - 1))
def test_rows_given_change_what_a_model_goes_by_and_others_do_not(project: Project, changed: int, first: int):
    plain, other = past_of(project, rows()), past_of(project, rows(changed))
    inside = first <= changed < KNOWN
    assert (plain.digest(Rows(first, KNOWN)) != other.digest(Rows(first, KNOWN))) is inside


def test_a_future_that_differs_changes_neither_model_nor_verdict_nor_what_was_watched(project: Project):
    told = []
    for table in (rows(), rows(changed=KNOWN + 150)):
        here, gang = world(project, table)
        model = here.train(Rows(0, KNOWN), None, None).model
        verdict = here.judge(model, None, Rows(0, KNOWN))
        period = Period("p", 300.0, 400.0, KNOWN, KNOWN + 100)
        here.predict(model, period)
        told.append((model, verdict, here.watch(model, period, period, KNOWN + 100), len(gang.jobs)))
    assert told[0][:3] == told[1][:3]
    assert [each[3] for each in told] == [1, 0], "the second found all of the first"


def test_settings_tell_models_apart_but_the_policy_and_the_judge_do_not(project: Project):
    key = world(project)[0].train(Rows(0, KNOWN), None, None).model
    other, gang = world(project, None, "train.epochs=6")
    assert other.train(Rows(0, KNOWN), None, None).model != key
    assert len(gang.jobs) == 1
    same, idle = world(project, None, "judge.margin=0.1", "retrain.on=[decay]", "watch.window=200")
    assert same.train(Rows(0, KNOWN), None, None).model == key
    assert idle.jobs == []


def test_the_newest_training_rows_tell_models_apart_and_leave_the_test_rows(project: Project):
    here, gang = world(project)
    models = {here.train(Rows(0, KNOWN), newest, None).model for newest in (None, 150)}
    assert len(models) == 2
    assert [
        here.preparation(model).rows for model in sorted(models, key=lambda key: here.preparation(key).rows["train"])
    ] == [
        {"train": 150, "validation": 45, "test": 45},
        {"train": 210, "validation": 45, "test": 45},
    ]
    assert len(gang.jobs) == 2


def test_rows_that_cannot_be_trained_on_are_a_failure_not_an_error(project: Project):
    here, _ = world(project)
    assert "rows" in here.train(Rows(0, 5), None, None).failure


def test_what_was_not_used_for_long_goes(project: Project):
    here, _ = world(project)
    model = here.train(Rows(0, KNOWN), None, None).model
    here.verdict(model, None)
    later, _ = world(project)
    later.train(Rows(0, KNOWN), None, None)
    later.prune(older_than_s=-1)
    folder = project.state("tiny") / "backtest"
    assert len(list((folder / "models").iterdir())) == 1
    assert list((folder / "verdicts").iterdir()) == []
