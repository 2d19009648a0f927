"""What nothing needs goes, whatever may be needed stays, and a kill leaves nothing that is not found again."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.gc.candidates import Kind
from tasks.gc.collect import KINDS, Collection, Limits, find, remove
from tasks.gc.snapshot import ProjectRows, Snapshot, take
from tasks.host import leases
from tasks.host.leases import Lease
from tasks.host.workspace import Workspace
from tests.past_loops import add_loop, aged, crown, record_names

NAME = "tiny"
LOCAL = [kind for kind in KINDS if kind.name not in ("versions", "runs", "studies")]
"""Without what needs MLflow and Optuna: see tests/integration/test_gc.py."""


@contextlib.contextmanager
def alone(project: ProjectRows) -> Iterator[Lease]:
    with leases.leased(project.state.parents[1], f"loop:{project.name}") as lease:
        yield lease


@contextlib.contextmanager
def running(_: ProjectRows) -> Iterator[None]:
    yield None


def listed(workspace: Workspace) -> tuple[Snapshot, Collection]:
    snapshot = take(workspace, [NAME], {}, {NAME: {}})
    return snapshot, find(snapshot, LOCAL)


def names(collection: Collection, kind: str, *, kept: bool = False) -> set[str]:
    return {
        candidate.name.rpartition("/")[2] for candidate in collection.candidates[kind] if bool(candidate.reason) is kept
    }


@pytest.fixture
def past(workspace: Workspace) -> Path:
    """Loops 200, 150, 100, 20 and 1 days ago; the first was champion."""
    for number, days in enumerate((200, 150, 100, 20, 1), 1):
        add_loop(workspace, NAME, number, days)
    crown(workspace, NAME, "1")
    crown(workspace, NAME, "4")
    return workspace.state / "projects" / NAME


def test_a_dry_run_says_what_goes_and_why_the_rest_stays(workspace: Workspace, past: Path) -> None:
    _, collection = listed(workspace)
    reasons = {candidate.reason for candidate in collection.candidates["step records"]}
    assert {reason for reason in reasons if not reason.startswith("the last record of")} == {
        "",
        "tiny version 1: it was champion",
        "tiny version 4: it is the champion",
    }
    assert names(collection, "pages") == {"tiny-2", "tiny-3"}
    assert len(names(collection, "step folders", kept=True)) == 1, "those of yesterday; the others are too old"
    assert len(record_names(workspace)) == 35
    assert (past / "pages" / "tiny-2").exists()


def test_what_is_garbage_goes_and_a_champions_records_stay(workspace: Workspace, past: Path) -> None:
    snapshot, collection = listed(workspace)
    remove(snapshot, collection, alone, Limits(), LOCAL)
    kept = record_names(workspace)
    assert [name for name in kept if name.endswith(("-2", "-3"))] == [
        "gc:search tiny-2",
        "gc:search tiny-3",
        "gc:version tiny-2",
        "gc:version tiny-3",
    ], "they name studies, and data of versions, that are still there"
    assert sum(name.endswith("-1") for name in kept) == 7
    assert {path.name for path in (past / "pages").iterdir()} == {"tiny-1", "tiny-4", "tiny-5"}
    assert collection.removed["step folders"] == 4 * 7 * 5
    assert not list(past.rglob(".*"))
    again_snapshot, again = listed(workspace)
    remove(again_snapshot, again, alone, Limits(), LOCAL)
    assert set(again.removed.values()) == {0}


def test_of_a_project_whose_loop_runs_nothing_goes(workspace: Workspace, past: Path) -> None:
    snapshot, collection = listed(workspace)
    remove(snapshot, collection, running, Limits(), LOCAL)
    assert collection.skipped == {NAME: "a loop of it runs"}
    assert len(record_names(workspace)) == 35
    assert (past / "pages" / "tiny-2").exists()


def test_what_came_after_the_look_keeps_everything(workspace: Workspace, past: Path) -> None:
    snapshot, collection = listed(workspace)
    crown(workspace, NAME, "2")
    remove(snapshot, collection, alone, Limits(), LOCAL)
    assert collection.skipped == {NAME: "a loop or a move came meanwhile"}
    assert (past / "pages" / "tiny-2").exists()


def test_limits_leave_the_rest_for_the_next_time(workspace: Workspace, past: Path) -> None:
    snapshot, collection = listed(workspace)
    folders = [kind for kind in LOCAL if kind.name == "step folders"]
    remove(snapshot, collection, alone, Limits(size=12), folders)
    assert sum(collection.removed.values()) == 10
    remove(snapshot, collection, alone, Limits(seconds=0), LOCAL)
    assert sum(collection.removed.values()) == 0


def test_what_is_larger_than_a_days_limit_goes_alone(workspace: Workspace, past: Path) -> None:
    large = aged(past / "work" / "train" / "large" / "weights", 30, "x" * 10_000)
    snapshot, collection = listed(workspace)
    remove(snapshot, collection, alone, Limits(size=5_000), LOCAL)
    assert sum(collection.removed.values()) == 10_000
    assert not large.exists()


def test_what_was_used_since_the_look_stays(workspace: Workspace, past: Path) -> None:
    snapshot, collection = listed(workspace)
    used = past / "work" / "train" / f"{1:016d}" / "output.bin"
    os.utime(used, (time.time() + 60,) * 2)
    remove(snapshot, collection, alone, Limits(), LOCAL)
    assert used.exists()


def test_a_cached_model_goes_unless_it_is_in_use(workspace: Workspace, past: Path) -> None:
    place = workspace.cache / "models" / NAME
    for number in ("1", "2", "4"):
        aged(place / number / "model.onnx", 30)
        mark = aged(place / f"{number}.json", 1 if number == "2" else 30, "{}")
        os.utime(mark, (mark.stat().st_mtime,) * 2)
    (place / "aliases.json").write_text('{"champion": "4"}')
    snapshot, collection = listed(workspace)
    assert names(collection, "cached models") == {"1"}
    remove(snapshot, collection, alone, Limits(), LOCAL)
    assert sorted(path.name for path in place.iterdir()) == ["2", "2.json", "4", "4.json", "aliases.json"]


def test_what_a_kill_left_is_found(workspace: Workspace, past: Path) -> None:
    left = aged(past / "work" / "train" / ".abc.999999999-12345678.tmp" / "x", 0)
    cached = aged(workspace.cache / ".y.999999999-12345678.tmp", 0)
    snapshot, collection = listed(workspace)
    remove(snapshot, collection, alone, Limits(), LOCAL)
    assert not left.exists()
    assert not cached.exists()


def test_a_tool_that_is_away_stops_only_what_it_holds(workspace: Workspace, past: Path) -> None:
    def fail(_: Snapshot, __: object) -> None:
        raise StoreError("MLflow is away")

    kinds = [Kind("runs", lambda _: [], remove=fail), *LOCAL]
    snapshot = take(workspace, [NAME], {}, {NAME: {}})
    collection = find(snapshot, kinds)
    remove(snapshot, collection, alone, Limits(), kinds)
    assert collection.skipped == {"runs": "MLflow is away"}
    assert "runs" not in collection.removed
    assert collection.removed["step folders"] > 0


def test_every_kind_has_a_name_of_its_own() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
