"""What a loop removes when it ends: once a day, under its own lease, and nothing that it used."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from models.errors import LeaseLostError
from tasks.gc.loop_end import MARK, collect, mark_used
from tasks.host import database, leases
from tasks.host.tables import leases as table
from tasks.host.workspace import Workspace
from tests.past_loops import add_loop, aged


@pytest.fixture
def state(workspace: Workspace) -> Path:
    for number, days in enumerate((200, 30, 1), 1):
        add_loop(workspace, "tiny", number, days)
    return workspace.state / "projects" / "tiny"


def test_old_work_goes_once_a_day_and_what_was_used_stays(workspace: Workspace, state: Path) -> None:
    used = state / "work" / "train" / f"{1:016d}"
    with leases.leased(workspace.state, "loop:tiny") as lease:
        mark_used([used, state / "work" / "none"])
        assert collect(workspace, state, {"tiny-2"}, lease) == 13 * 5
        assert used.exists()
        assert not (state / "work" / "train" / f"{2:016d}").exists()
        late = aged(state / "work" / "train" / "late" / "x", 30)
        assert collect(workspace, state, set(), lease) == 0
        os.utime(state / MARK, (time.time() - 90_000,) * 2)
        assert collect(workspace, state, set(), lease) == 5
    assert not late.exists()


def test_who_lost_the_loop_removes_nothing(workspace: Workspace, state: Path) -> None:
    with leases.leased(workspace.state, "loop:tiny") as lease:
        with database.writing(workspace.state) as connection:
            connection.execute(table.update().values(epoch=table.c.epoch + 1))
        with pytest.raises(LeaseLostError):
            collect(workspace, state, set(), lease)
    assert (state / "work" / "train" / f"{1:016d}").exists()


def test_a_version_with_an_alias_that_was_not_read_keeps_its_records(workspace: Workspace, state: Path) -> None:
    with leases.leased(workspace.state, "loop:tiny") as lease:
        collect(workspace, state, set(), lease)
    assert (state / "pages" / "tiny-1").exists()
