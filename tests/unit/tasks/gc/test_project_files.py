"""Which files of a project are old, and which of them something needs."""

from __future__ import annotations

import os
import time

from tasks.gc import project_files
from tasks.gc.snapshot import take
from tasks.host.locks import held
from tasks.host.workspace import Workspace
from tests.past_loops import add_loop, aged, crown


def test_a_long_training_that_was_killed_is_gone_on_with(workspace: Workspace) -> None:
    folder = workspace.state / "projects" / "tiny" / "work" / "train" / "long"
    aged(folder / "checkpoints" / "7" / "model.pt", 2)
    os.utime(folder, (time.time() - 30 * 86400,) * 2)
    aged(folder.with_name("old") / "best.pt", 15, "12345")
    aged(folder.parents[1] / "tensors" / "ab-cd" / "x.safetensors", 20)
    found = {
        item.name.rpartition("/")[2]: item
        for item in project_files.files_of("step folders")(take(workspace, ["tiny"], {}, {}))
    }
    assert {name: found[name].reason for name in found} == {"long": "used within 14 days", "old": "", "ab-cd": ""}
    assert found["old"].size == 5


def test_rejected_rows_and_references_follow_their_loop_and_version(workspace: Workspace) -> None:
    state = workspace.state / "projects" / "tiny"
    for number in (1, 2, 3):
        add_loop(workspace, "tiny", number, 200, folders=False)
        aged(state / "quarantine" / f"tiny-{number}" / "raw" / "failing_rows.parquet", 200)
        aged(state / "references" / f"{number}.json", 200)
        aged(state / "shadows" / f"{number}.json", 200)
        aged(state / "shadows" / str(number) / "_delta_log" / "1.json", 200)
        os.utime(state / "shadows" / str(number), (time.time() - 200 * 86400,) * 2)
        os.utime(state / "quarantine" / f"tiny-{number}", (time.time() - 200 * 86400,) * 2)
    crown(workspace, "tiny", "2")
    snapshot = take(workspace, ["tiny"], {}, {"tiny": {}})
    listed = [
        item
        for kind in ("rejected rows", "data references", "shadow logs")
        for item in project_files.files_of(kind)(snapshot)
    ]
    assert [item.name.rpartition("/")[2] for item in listed if not item.reason] == [
        "tiny-1",
        "1.json",
        *sorted(["1", "1.json"], key=[path.name for path in (state / "shadows").glob("*")].index),
    ]


def test_an_old_entry_of_a_backtest_goes_unless_one_runs(workspace: Workspace) -> None:
    folder = workspace.state / "projects" / "tiny" / "backtest"
    old, page = aged(folder / "models" / "abc" / "model.onnx", 31), aged(folder / "backtest.html", 31)
    for number in (1, 2):
        aged(folder / "scores" / f"{number}.npz", 31 * number - 5)
    snapshot = take(workspace, ["tiny"], {}, {})
    chosen = [item for item in project_files.backtests(snapshot) if not item.reason]
    assert sorted(item.name.rpartition("/")[2] for item in chosen) == ["2.npz", "abc"]
    with held(folder / "backtest.lock", lambda: "runs"):
        project_files.remove_backtests(snapshot, chosen)
    assert old.exists()
    os.utime(folder / "scores" / "2.npz")
    project_files.remove_backtests(snapshot, chosen)
    assert sorted(path.name for path in folder.rglob("*.*")) == ["1.npz", "2.npz", "backtest.html", "backtest.lock"]
    assert not old.parent.exists()
    assert page.exists()


def test_predictions_are_listed_and_stay(workspace: Workspace) -> None:
    aged(workspace.state / "projects" / "tiny" / "predictions" / "part.parquet", 900)
    snapshot = take(workspace, ["tiny"], {}, {})
    (listed,) = project_files.files_of("predictions and labels")(snapshot)
    assert listed.size == 5
    assert "monitor.keep_days" in listed.reason
