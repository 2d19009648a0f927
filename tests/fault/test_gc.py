"""A killed clean-up removes nothing that is needed, and the next one finds what it left; a year of loops is small."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.gc.collect import KINDS, Limits, find, remove
from tasks.gc.retention import KEEP_LOOPS
from tasks.gc.snapshot import ProjectRows, Snapshot, take
from tasks.host import leases
from tasks.host.leases import Lease
from tasks.host.workspace import Workspace
from tests.conftest import SEED
from tests.killing import killed_at
from tests.past_loops import STEPS, add_loop, crown, record_names
from tests.wide import wide

pytestmark = pytest.mark.fault
NAME = "tiny"
LOCAL = [kind for kind in KINDS if kind.name not in ("versions", "runs", "studies", "data in DVC's cache")]
"""What lies in files and rows of ours: what MLflow holds is asked for in tests/integration/test_gc.py."""
MOST_STEPS = 150
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
@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.soak)])
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
