"""What a loop reached is written for DVC's own commands, once all steps have ended."""

import json
from types import SimpleNamespace

from tasks.host.workspace import Project
from tasks.loop.dvc_results import show_in_dvc
from tests.conftest import MakeProject

RESULTS = {
    "judge": {"metrics": {"accuracy": 0.9, "log_loss": None}},
    "train": {"epochs": [{"train_loss": 0.5, "val_accuracy_se": 0.1}]},
    "promote": {"version": "3", "decision": "promote"},
}


def loop_of(project: Project, *steps: str) -> SimpleNamespace:
    done = {step: SimpleNamespace(result=RESULTS[step]) for step in steps}
    return SimpleNamespace(project=project, id="tiny-1", done=done)


def test_the_numbers_of_an_ended_loop_lie_beside_its_spec(make_project: MakeProject) -> None:
    project = make_project("tiny")
    project.workspace.make()
    show_in_dvc(loop_of(project, *RESULTS))
    numbers = {"loop": "tiny-1", "version": 3, "is_champion": True, "test": {"accuracy": 0.9}}
    assert json.loads((project.folder / "metrics.json").read_text()) == numbers
    assert (project.folder / "curves.csv").read_text() == "epoch,train_loss\n1,0.5\n"


def test_a_loop_that_ended_early_leaves_what_is_there(make_project: MakeProject) -> None:
    project = make_project("tiny")
    show_in_dvc(loop_of(project, "train", "judge"))
    assert not (project.folder / "metrics.json").exists()
