import json

import pytest
from click.testing import CliRunner

from flows.commands.plan import command
from flows.console.planning import print_planning
from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.inputs.numeric.record import NumericInput
from models.nets.sizes import Sizes
from models.planner.candidates import Candidate
from models.planner.machines import read_machine
from models.planner.memory import TrainingShape
from models.planner.planning import plan
from models.planner.profile import Profiler
from models.project_spec.blocks import Model
from tests.conftest import MakeProject


def test_a_person_reads_plans_choice_and_reasons(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    """1.2 thousand million parameters are 19 GB of weights, gradients and state, and 5 of best weights."""
    sizes = Sizes("table", "binary", 64)
    profiler = Profiler(Model(net="mlp", arguments={"hidden": 20_000, "layers": 4}), sizes, tmp_path)
    machine = read_machine("laptop").model_copy(update={"memory_gb": 24.0})
    print_planning(plan(profiler, machine, TrainingShape(512, on_cpu=True), Candidate("ddp")), "churn")
    shown = capsys.readouterr().out
    assert "1,201,460,001 parameters on laptop: 4 x cpu, 24 GB each" in shown
    plans = {line.split("  ")[0]: line for line in shown.splitlines()}
    assert "does not fit" in plans["ddp"]
    assert "does not fit" not in plans["tp, tensor 4"]
    assert "loopline run churn -s train.parallel=" in shown
    assert "at 50% of the peak arithmetic, an assumption" in shown


def test_a_script_reads_json(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project("tiny")
    project.prepared.mkdir(parents=True)
    target, numeric = TargetEncoding(name="y", classes=["no", "yes"]), [NumericInput(name="x", fill=0.0)]
    Preparation(kind="table", task="binary", target=target, inputs=[*numeric]).save(project.prepared)
    monkeypatch.setenv("LOOPLINE_HOME", str(project.workspace.root))
    done = CliRunner().invoke(command, ["tiny", "--cluster", "2x8xH100", "--json", "-s", "train.batch=4096"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["machine"]["nodes"] == 2
    assert told["recommended"]
