"""What jobs measured stays in the workspace: the newest, and never a reason to fail."""

from models.training.costs.speeds import MeasuredSpeed
from tasks.state import machine_speeds
from tasks.state.machine_speeds import add_speeds, read_speeds
from tests.conftest import MakeProject

ONE = MeasuredSpeed(device="H100", precision="bf16", net="decoder", mfu=0.25)


def test_the_newest_speeds_are_read_again(make_project: MakeProject, monkeypatch) -> None:
    workspace = make_project("tiny").workspace
    assert read_speeds(workspace) == ()
    monkeypatch.setattr(machine_speeds, "NEWEST", 2)
    others = [ONE.model_copy(update={"mfu": share}) for share in (0.3, 0.35)]
    add_speeds(workspace, [ONE])
    add_speeds(workspace, others)
    assert read_speeds(workspace) == tuple(others)
    (workspace.cache / "speeds.json").write_text('{"speeds": [{"mfu": 0}]}')
    assert read_speeds(workspace) == ()
