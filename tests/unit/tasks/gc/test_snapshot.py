"""What is needed: champions, what the spec or a person names, the last loops, and what a loop used again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from models.pipeline.reachability import YOUNG
from tasks.gc.retention import DAY_S, KEEP_CHAMPIONS, KEEP_LOOPS
from tasks.gc.snapshot import Snapshot, take
from tasks.host import database
from tasks.host.store_addresses import ROOT
from tasks.host.tables import champion_moves, step_records
from tasks.host.workspace import Workspace
from tests.past_loops import add_loop, crown

NAME = "tiny"


def reasons(snapshot: Snapshot) -> dict[str, str]:
    """Why each version stays."""
    return {
        version.number: snapshot.why(f"{NAME}/version:{version.number}").rpartition(": ")[2]
        for version in snapshot.projects[NAME].versions
    }


def test_the_last_loops_stay_with_their_versions_however_old_they_are(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 5):
        add_loop(workspace, NAME, number, 400, folders=False)
    monkeypatch.setenv(KEEP_LOOPS, "3")
    snapshot = take(workspace, [NAME], {}, {NAME: {}})
    assert reasons(snapshot) == {"1": "", "2": YOUNG, "3": YOUNG, "4": "the last record of register of tiny"}
    assert snapshot.why("data:raw2.dir", "study:tiny-study2") == YOUNG
    assert not snapshot.why("data:raw1.dir", "study:tiny-study1")


def test_former_champions_stay_for_ever_or_as_long_as_they_should(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        add_loop(workspace, NAME, number, 400, folders=False)
        crown(workspace, NAME, str(number))
    with database.writing(workspace.state) as connection:
        connection.execute(champion_moves.update().values(at=champion_moves.c.at - 300 * DAY_S))
        newest = connection.scalar(select(champion_moves.c.number).order_by(champion_moves.c.number.desc()))
        connection.execute(champion_moves.update().where(champion_moves.c.number == newest).values(best="2:abc"))
    was = dict.fromkeys("1234", "it was champion")
    compared = {"2": "the champion is compared with it", "5": "it is the champion"}
    assert reasons(take(workspace, [NAME], {}, {NAME: {}})) == was | compared
    monkeypatch.setenv(KEEP_CHAMPIONS, "299")
    kept = reasons(take(workspace, [NAME], {}, {NAME: {}}))
    assert kept == {"1": "", "3": "", "4": "it was champion", **compared}, "a rollback goes to the last one"
    monkeypatch.setenv(KEEP_CHAMPIONS, "301")
    assert reasons(take(workspace, [NAME], {}, {NAME: {}})) == was | compared


def test_what_the_caller_names_is_a_root(workspace: Workspace) -> None:
    for number in (1, 2, 3):
        add_loop(workspace, NAME, number, 400, folders=False)
    named = take(workspace, [NAME], {f"{NAME}/version:1": "the spec names it"}, {NAME: {"2": "audit"}})
    last = {"3": "the last record of register of tiny"}
    assert reasons(named) == {"1": "the spec names it", "2": "MLflow has the alias audit", **last}
    assert named.why("data:prepared1.dir") == "the spec names it"


@pytest.mark.parametrize(("days", "is_kept"), [(2, True), (100, False)])
def test_a_loop_that_used_a_step_of_the_object_store_keeps_its_record(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float, is_kept: bool
) -> None:
    add_loop(workspace, NAME, 1, 400, folders=False)
    add_loop(workspace, NAME, 2, 200, folders=False)
    monkeypatch.setenv(ROOT, f"file://{tmp_path}/bucket")
    manifest = tmp_path / "bucket" / "projects" / NAME / "steps" / "manifests" / "abc.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    os.utime(manifest, (time.time() - days * DAY_S,) * 2)
    with database.writing(workspace.state) as connection:
        for row in connection.execute(select(step_records).where(step_records.c.number == 5)).all():
            named = step_records.update().where(step_records.c.number == row.number)
            connection.execute(named.values(content={**row.content, "snapshot": "abc"}))
    snapshot = take(workspace, [NAME], {}, {NAME: {}})
    assert bool(snapshot.why(f"{NAME}/record:5")) is is_kept
    assert not snapshot.why(f"{NAME}/record:6")
