"""Which files of a project are old, and which of them something needs."""

from __future__ import annotations

import os
import time

from tasks.gc import project_files
from tasks.gc.snapshot import take
from tasks.host.workspace import Workspace
from tests.past_loops import add_loop, aged, crown


def test_a_long_training_that_was_killed_is_gone_on_with(workspace: Workspace) -> None:
    folder = workspace.state / "projects" / "tiny" / "work" / "train" / "long"
    aged(folder / "checkpoints" / "7" / "model.pt", 2)
    os.utime(folder, (time.time() - 30 * 86400,) * 2)
    aged(folder.with_name("old") / "best.pt", 15, "12345")
    aged(folder.parents[1] / "tensors" / "ab-cd" / "x.safetensors", 20)
    found = {
        item.name.rpartition("/")[2]: item for item in project_files.step_folders(take(workspace, ["tiny"], {}, {}))
    }
    assert {name: found[name].reason for name in found} == {"long": "used within 14 days", "old": "", "ab-cd": ""}
    assert found["old"].size == 5


def test_rejected_rows_and_references_follow_their_loop_and_version(workspace: Workspace) -> None:
    state = workspace.state / "projects" / "tiny"
    for number in (1, 2, 3):
        add_loop(workspace, "tiny", number, 200, folders=False)
        aged(state / "quarantine" / f"tiny-{number}" / "raw" / "failing_rows.parquet", 200)
        aged(state / "references" / f"{number}.json", 200)
        os.utime(state / "quarantine" / f"tiny-{number}", (time.time() - 200 * 86400,) * 2)
    crown(workspace, "tiny", "2")
    snapshot = take(workspace, ["tiny"], {}, {"tiny": {}})
    listed = [*project_files.rejected_rows(snapshot), *project_files.references(snapshot)]
    assert [item.name.rpartition("/")[2] for item in listed if not item.reason] == ["tiny-1", "1.json"]
