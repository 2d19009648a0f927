"""A killed clean-up removes nothing that is needed, and the next one finds what it left; a year of loops is small."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.gc.collect import KINDS, Limits, find, remove
from tasks.gc.loop_end import mark_used
from tasks.gc.retention import KEEP_LOOPS
from tasks.gc.snapshot import ProjectRows, Snapshot, take
from tasks.host import leases
from tasks.host.leases import Lease
from tasks.host.locks import held, tried
from tasks.host.workspace import Workspace
from tasks.loop.history import LOOP_LOCK
from tests.conftest import SEED
from tests.killing import CLEAN, killed_at
from tests.past_loops import STEPS, add_loop, crown, record_names
from tests.wide import wide

pytestmark = pytest.mark.fault
NAME = "tiny"
LOCAL = [kind for kind in KINDS if kind.name not in ("versions", "runs", "studies")]
"""What lies in files and rows of ours: what MLflow holds is asked for in tests/integration/test_gc.py."""
MOST_STEPS = 150
LONGEST_S = 1.5
"""Some clean-ups one after another, on a busy machine."""
YEAR_BYTES = 3_000_000


@pytest.fixture(autouse=True)
def no_last_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few loops stand for many: none stays for its number alone."""
    monkeypatch.setenv(KEEP_LOOPS, "0")


@contextlib.contextmanager
def alone(project: ProjectRows) -> Iterator[Lease]:
    with leases.leased(project.state.parents[1], f"loop:{project.name}") as lease:
        yield lease


def snapshot_of(root: Path) -> Snapshot:
    return take(Workspace(root), [NAME], {}, {NAME: {}})


def collect(root: Path) -> None:
    """What a killed process does: it lists and removes."""
    snapshot = snapshot_of(root)
    remove(snapshot, find(snapshot, LOCAL), alone, Limits(), LOCAL)


def needed(root: Path) -> tuple[set[str], set[Path]]:
    """The rows and files that something needs."""
    listed = find(snapshot_of(root), LOCAL).candidates
    rows = {found.name for found in listed["step records"] if found.reason}
    paths = {found.path for kind in listed.values() for found in kind if found.reason and found.path}
    return rows, paths


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kills", [3, wide(5), pytest.param(200, marks=pytest.mark.soak)])
def test_a_killed_clean_up_is_finished_by_the_next(workspace: Workspace, kills: int) -> None:
    draw = random.Random(SEED)
    for number, days in enumerate((300, 20, 2), 1000):
        add_loop(workspace, NAME, number, days)
    crown(workspace, NAME, "1000")
    for number in range(1, kills + 1):
        add_loop(workspace, NAME, number, 250)
        rows, paths = needed(workspace.root)
        killed_at(draw.randrange(MOST_STEPS), collect, workspace.root)
        rows_after, paths_after = needed(workspace.root)
        assert rows <= rows_after
        assert all(path.exists() for path in paths)
        assert paths <= paths_after
    collect(workspace.root)
    left = find(snapshot_of(workspace.root), LOCAL).candidates
    assert not [found for kind in left.values() for found in kind if not found.reason]
    champions = [name for name in record_names(workspace) if name.endswith("tiny-1000")]
    assert len(champions) == len(STEPS)


def add_data(root: Path, number: int) -> set[Path]:
    """Let DVC's cache hold the data of a loop: a file that all share, and one of its own; return the objects."""
    objects = set()
    for name in (f"raw{number}.dir", f"prepared{number}.dir"):
        files = {f"{name[:-4]}-own": "own", "shared": "shared"}
        listing = json.dumps([{"md5": file, "relpath": file} for file in files])
        for object_hash, content in {**files, name: listing}.items():
            path = root / ".dvc" / "cache" / "files" / "md5" / object_hash[:2] / object_hash[2:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            objects.add(path)
    return objects


def run_loops(root: Path, seed: int) -> None:
    """What teams do beside a clean-up: loops that use an old step again, promotions, and loops that nobody needs.

    Each turn is one loop under its lease. It prints into `promised` what must stay from then on.
    """
    workspace, draw = Workspace(root), random.Random(seed)
    state = workspace.state / "projects" / NAME
    with (root / "promised").open("a") as promised:
        for number in itertools.count(2001):
            with (
                held(state / LOOP_LOCK, lambda: "a clean-up hangs", 60.0),
                leases.leased(workspace.state, f"loop:{NAME}"),
            ):
                aim = draw.choice([number, draw.randrange(2000, number + 1)])
                work = state / "work" / "train" / f"{aim:016d}"
                is_there = any(name == f"train {NAME}-{aim}" for name in record_names(workspace))
                if is_there and work.exists():
                    mark_used([work])  # a loop of today uses the step
                    time.sleep(draw.uniform(0, 0.05))
                    assert any(name == f"train {NAME}-{aim}" for name in record_names(workspace)), "while it ran"
                    assert work.exists()
                    promised.write(f"train {NAME}-{aim}\n{work}\n")
                objects = add_data(root, number)
                is_promoted = draw.random() < 0.2
                add_loop(workspace, NAME, number, draw.choice([250, 250, 250, 10]), version=is_promoted)
                if is_promoted:
                    crown(workspace, NAME, str(number))
                    promised.write("".join(f"{step} {NAME}-{number}\n" for step in STEPS))
                    promised.write("".join(f"{path}\n" for path in objects))
                promised.flush()
            time.sleep(draw.uniform(0, 0.1))


@pytest.mark.timeout(6000)
@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_beside_loops_a_killed_clean_up_removes_nothing_that_is_needed(workspace: Workspace, kills: int) -> None:
    draw = random.Random(SEED)
    add_loop(workspace, NAME, 1999, 250, version=False)
    own = {path for path in add_data(workspace.root, 1999) if path.name != "ared"}
    add_loop(workspace, NAME, 2000, 0)
    add_data(workspace.root, 2000)
    loops = CLEAN.Process(target=run_loops, args=(workspace.root, SEED), daemon=True)
    loops.start()
    try:
        killed = 0
        while killed < kills:
            collector = CLEAN.Process(target=collect_all, args=(workspace.root,))
            collector.start()
            collector.join(draw.uniform(0, LONGEST_S))
            collector.kill()
            collector.join()
            assert collector.exitcode in (0, -signal.SIGKILL), "it failed before it was killed"
            killed += collector.exitcode != 0
            assert loops.is_alive(), "a loop found that what it used was gone"
        assert_promises_kept(workspace)
    finally:
        loops.kill()
        loops.join()
    collect(workspace.root)
    assert_promises_kept(workspace)
    left = find(snapshot_of(workspace.root), LOCAL).candidates
    assert not [found for kind in left.values() for found in kind if not found.reason]
    assert [name for name in record_names(workspace) if name.startswith("gc:version")] == []
    assert [path for path in own if path.exists()] == []


def collect_all(root: Path) -> None:
    """Clean up again and again; a project whose loop runs is left out."""
    while True:
        snapshot = snapshot_of(root)
        remove(snapshot, find(snapshot, LOCAL), tried_alone, Limits(), LOCAL)


@contextlib.contextmanager
def tried_alone(project: ProjectRows) -> Iterator[Lease | None]:
    with tried(project.state / LOOP_LOCK) as is_free:
        if not is_free:
            yield None
            return
        with alone(project) as lease:
            yield lease


def assert_promises_kept(workspace: Workspace) -> None:
    """Whatever a loop used or promoted is there: its records, its step's folder, its data."""
    promised = (workspace.root / "promised").read_text().splitlines(keepends=True)
    records = {*record_names(workspace)}
    whole = {line.strip() for line in promised if line.endswith("\n")}
    assert {name for name in whole if not name.startswith("/")} <= records
    assert [path for path in whole if path.startswith("/") and not Path(path).exists()] == []


@pytest.mark.parametrize("days", [120, wide(365)])
def test_a_year_of_daily_loops_stays_under_its_size(workspace: Workspace, days: int) -> None:
    """A loop a day, of which each tenth is promoted: what is left is that of 90 days and of champions."""
    for number in range(1, days + 1):
        add_loop(workspace, NAME, number, days + 1 - number, folders=number % 30 == 0)
        if number % 10 == 0:
            crown(workspace, NAME, str(number))
    collect(workspace.root)
    listed = find(snapshot_of(workspace.root), LOCAL).candidates
    assert not [found for kind in listed.values() for found in kind if not found.reason]
    assert len(listed["step records"]) <= len(STEPS) * (91 + 1 + days // 10)
    assert sum(found.size for kind in listed.values() for found in kind) < YEAR_BYTES
