"""A loop's machine is sampled while the loop runs, and no longer."""

import time

import pytest

from tasks.host.workspace import Workspace
from tasks.loop import machine_samples
from tasks.loop.machine_samples import MachineSamples
from tasks.state.outbox import Outbox


def test_samples_are_rows_of_the_loops_run(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_samples, "INTERVAL_S", 0.01)
    outbox = Outbox(workspace.state / "projects" / "tiny", "l")
    with MachineSamples(outbox):
        while len(outbox.lines()) < 2:
            time.sleep(0.01)
    (first, *_) = lines = [*outbox.lines().values()]
    assert (first["run"], first["op"]) == ("loop", "metrics")
    assert 0 < first["metrics"]["system/system_memory_usage_percentage"] <= 100
    assert [*outbox.lines().values()] == lines, "it ended with the block"
