"""What jobs measured stays in the workspace: the newest, and never a reason to fail."""

import pytest

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


@pytest.mark.parametrize(
    "damaged", ['{"speeds": [{"mfu": 0}]}', '{"speeds": 5}', '{"speeds": null}', ONE.model_dump_json(), '{"speeds": [']
)
def test_a_damaged_file_counts_as_none_and_is_replaced(make_project: MakeProject, damaged: str) -> None:
    workspace = make_project("tiny").workspace
    workspace.cache.mkdir(parents=True, exist_ok=True)
    (workspace.cache / "speeds.json").write_text(damaged)
    assert read_speeds(workspace) == ()
    add_speeds(workspace, [ONE])
    assert read_speeds(workspace) == (ONE,)


@pytest.mark.parametrize("absurd", ['"mfu": Infinity', '"mfu": NaN', '"mfu": -1', '"mfu": 1, "compile_s": Infinity'])
def test_no_speed_is_infinite(make_project: MakeProject, absurd: str) -> None:
    """JSON has no infinity: a job that held one could not be read by its ranks."""
    workspace = make_project("tiny").workspace
    workspace.cache.mkdir(parents=True, exist_ok=True)
    entry = f'{{"device": "cpu", "precision": "fp32", "net": "mlp", {absurd}}}'
    (workspace.cache / "speeds.json").write_text(f'{{"speeds": [{entry}]}}')
    assert read_speeds(workspace) == ()
