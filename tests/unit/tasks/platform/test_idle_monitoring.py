"""A monitoring run that would see what the last one saw is told from one that is needed; nothing needs a server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from models.files import write_json, write_text
from tasks.host import database
from tasks.host.store_addresses import ROOT
from tasks.host.workspace import Project
from tasks.platform.idle_monitoring import DAY_S, QUIET_S, SEEN_FILE, is_idle, remember, stats_of
from tasks.state import champion_moves
from tasks.state.segments import SegmentWriter, segments_folder
from tests.conftest import MakeProject

NOW = time.time()


@pytest.fixture
def seen(make_project: MakeProject) -> Project:
    """A project of which a monitoring run saw everything, an hour ago."""
    project = make_project()
    for folder in ("predictions", "labels"):
        (project.state("tiny") / folder / "_delta_log").mkdir(parents=True)
    for path in [project.spec_path, project.folder / "data.csv", *project.state("tiny").rglob("*")]:
        os.utime(path, (NOW - 7200, NOW - 7200))
    remember(project.state("tiny"), stats_of(project), NOW - 3600)
    return project


def test_a_project_with_nothing_new_is_idle_until_a_day_has_passed(seen: Project) -> None:
    assert is_idle(seen, NOW)
    assert not is_idle(seen, NOW - 3600 + DAY_S + 1)


def rows(project: Project) -> None:
    (project.folder / "data.csv").write_text("x,c,y\n1,u,no\n")


def spec(project: Project) -> None:
    project.spec_path.write_text(project.spec_path.read_text() + "monitor: {window: 200}\n")


def commit(project: Project, log: str) -> None:
    write_text(project.state("tiny") / log / "_delta_log" / "00000000000000000000.json", "{}")


def champion(project: Project) -> None:
    with database.writing(project.workspace.state) as connection:
        champion_moves.record(
            connection, "tiny", 0, action="promote", before=None, after="1", by="a person", reason="better"
        )


@pytest.mark.parametrize(
    "change",
    [rows, spec, champion, lambda project: commit(project, "predictions"), lambda project: commit(project, "labels")],
    ids=["rows", "spec", "champion", "predictions", "labels"],
)
def test_whatever_is_new_is_monitored(seen: Project, change: Callable[[Project], None]) -> None:
    change(seen)
    assert not is_idle(seen, NOW)


def test_what_a_server_wrote_and_nobody_moved_yet_is_new(seen: Project) -> None:
    writer = SegmentWriter(segments_folder(seen.state("tiny")))
    writer.write(b"rows")
    writer.close()
    assert not is_idle(seen, NOW)


def test_a_source_that_may_still_be_written_is_looked_at_again(seen: Project) -> None:
    os.utime(seen.folder / "data.csv", (NOW - QUIET_S / 2, NOW - QUIET_S / 2))
    remember(seen.state("tiny"), stats_of(seen), NOW)
    assert not is_idle(seen, NOW)


def test_before_the_first_run_and_with_a_damaged_note_a_project_is_not_idle(seen: Project) -> None:
    note = seen.state("tiny") / SEEN_FILE
    note.write_text('{"at": 1')
    assert not is_idle(seen, NOW)
    note.unlink()
    assert not is_idle(seen, NOW)


def test_a_new_file_of_a_folder_is_seen(seen: Project) -> None:
    folder = seen.folder / "days"
    write_text(folder / "1.csv", "x,c,y\n1,u,no\n")
    seen.spec_path.write_text(seen.spec_path.read_text().replace("data.csv", "days"))
    before = stats_of(seen)
    write_json(seen.state("tiny") / SEEN_FILE, {"at": NOW, "stats": before})
    assert is_idle(seen, NOW)
    write_text(folder / "2.csv", "x,c,y\n2,v,yes\n")
    assert not is_idle(seen, NOW)


def test_what_only_own_code_an_address_or_another_machine_knows_is_always_monitored(
    seen: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ROOT, "s3://bucket/prefix")
    assert stats_of(seen) is None
    monkeypatch.delenv(ROOT)
    (seen.folder / "source.py").write_text("def load():\n    return None\n")
    spec = seen.spec_path.read_text()
    for source in ("./source.py:load", "s3://lab/trips"):
        seen.spec_path.write_text(spec.replace("data.csv", source))
        assert stats_of(seen) is None
