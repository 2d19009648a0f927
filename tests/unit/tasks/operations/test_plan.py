import pytest

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import UsageError
from models.inputs.numeric.record import NumericInput
from models.project_spec.reader import read_spec
from tasks.host.workspace import Project
from tasks.operations.plan import plan_cluster
from tests.conftest import MakeProject


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    project = make_project("tiny")
    project.prepared.mkdir(parents=True)
    Preparation(
        kind="table",
        task="binary",
        target=TargetEncoding(name="y", classes=["no", "yes"]),
        inputs=[NumericInput(name=f"x{i}", fill=0.0) for i in range(3)],
    ).save(project.prepared)
    return project


def test_a_project_is_weighed_on_a_cluster(project: Project) -> None:
    spec = read_spec(project.spec_path, ["train.batch=512", "train.optimiser=sgd"])
    found = plan_cluster(project, spec, "8xA100")
    assert found.machine.world_size == 8
    assert found.best is not None
    weighed = next(one.memory for one in found.estimates if one.memory and one.candidate.ranks == 1)
    assert weighed.optimiser == weighed.gradients, "one number of momentum a weight"


def test_this_machine_can_be_asked_for(project: Project) -> None:
    found = plan_cluster(project, read_spec(project.spec_path), "detect")
    assert found.machine.name.startswith("this machine")


def test_without_prepared_data_its_shapes_are_not_known(make_project: MakeProject) -> None:
    project = make_project("bare")
    with pytest.raises(UsageError, match="no prepared data"):
        plan_cluster(project, read_spec(project.spec_path), "laptop")


def test_trees_are_not_trained_on_ranks(project: Project) -> None:
    with pytest.raises(UsageError, match="nothing to plan"):
        plan_cluster(project, read_spec(project.spec_path, ["model.net=trees"]), "laptop")
