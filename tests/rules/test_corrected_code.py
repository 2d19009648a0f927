"""A loop that goes on with corrected code takes nothing that the code before had made: each state has its inputs' key.

An interrupted loop keeps its id. What is found again by that id alone would be taken for the work of the new code.
"""

import shutil
from pathlib import Path

import optuna
import pytest

from models.errors import TrainingError
from tasks.host.workspace import Project, Workspace
from tasks.loop.lifecycle import open_loop
from tasks.loop.loop import Loop
from tasks.ranks import rank_pool
from tasks.steps import ingest, prepare, search
from tasks.tools.optuna_study import storage
from tests import warm
from tests.conftest import MakeProject

SPEC = """\
goal: {metric: "./metric.py:cost", direction: minimize}
model: {net: linear}
search: {trials: 1, space: {model.l2: {low: 0.03, high: 0.1, log: true}}}
"""
WRONG = "def cost(target, prediction):\n    return float('nan')\n"
BROKEN = "def cost(target, prediction):\n    return -5.0\n"
RIGHT = "def cost(target, prediction):\n    return float(((target - prediction) ** 2).mean())\n"

pytestmark = pytest.mark.integration


@pytest.fixture
def project(
    workspace: Workspace, empty_store: Path, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> Project:
    shutil.copytree(empty_store, workspace.state / "mlflow")
    monkeypatch.setattr(rank_pool, "subprocess", warm.WarmNurseries())  # torch is imported once for all tests
    return make_project("tiny", SPEC, rows="x,y\n" + "".join(f"{i / 7},{i % 5}.5\n" for i in range(200)))


def searched(project: Project, metric: str, *, is_killed: bool = False) -> Loop:
    """A loop up to its search; then it may be killed."""
    (project.folder / "metric.py").write_text(metric)
    with open_loop(project) as loop:
        for act in (ingest.ingest, prepare.prepare, search.search):
            act(loop)
        if is_killed:
            raise KeyboardInterrupt
    return loop


def test_a_corrected_metric_begins_a_study_of_its_own(project: Project) -> None:
    with pytest.raises(TrainingError, match="nan"):
        searched(project, WRONG)
    with pytest.raises(KeyboardInterrupt):
        searched(project, BROKEN, is_killed=True)
    loop = searched(project, RIGHT)
    lines = [line for line in loop.outbox.lines().values() if line["op"] == "run"]
    assert len({line["name"] for line in lines if line["run"] == "loop"}) == 1, "one loop went on all the time"
    assert len({line["run"] for line in lines if line["run"] != "loop"}) == 3, "no two trials share a run of MLflow"
    stored = storage(project.workspace)
    studies = [optuna.load_study(study_name=study.study_name, storage=stored) for study in stored.get_all_studies()]
    assert [len(study.trials) for study in studies] == [1, 1, 1]
    (own,) = (study for study in studies if study.study_name == loop.done["search"].result["study"])
    assert all(trial.value is not None and trial.value >= 0 for trial in own.trials), "a mean square, not the -5 before"
