"""A past of a project, written straight into its rows and folders: a loop a day without its work."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from sqlalchemy import select

from models.pipeline.records import StepRecord
from models.serving.registry import KEY
from tasks.host import database
from tasks.host.tables import loops, step_records
from tasks.host.workspace import Workspace
from tasks.state import champion_moves, versions
from tasks.state.versions import StoredVersion

DAY_S = 86400.0
STEPS = ("ingest", "prepare", "version", "search", "train", "register", "promote")


def aged(path: Path, days: float, content: str = "12345") -> Path:
    """Write a file that was last changed so many days ago, with the folders above it up to the project's state."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    for changed in (path, path.parent, path.parent.parent):
        os.utime(changed, (time.time() - days * DAY_S,) * 2)
    return path


def add_loop(
    workspace: Workspace, project: str, number: int, days: float, *, version: bool = True, folders: bool = True
) -> str:
    """Add a loop that ended so many days ago: its records, folders, page, and its version `number`; return its id."""
    loop_id, then = f"{project}-{number}", time.time() - days * DAY_S
    state = workspace.state / "projects" / project
    results: dict[str, dict[str, Any]] = {
        "version": {"raw": f"raw{number}.dir", "prepared": f"prepared{number}.dir"},
        "search": {"study": f"{project}-study{number}"},
        "register": {"version": str(number), "key": f"work{number}"},
    }
    records, before = list[dict[str, Any]](), ""
    for step in STEPS:
        parts = {f"input:{STEPS[STEPS.index(step) - 1]}": before} if before else {}
        before = f"{step}-{number}"
        key = f"{number:016d}{step}"
        record = StepRecord(
            step=step,
            key=key,
            parts=parts,
            digest=before,
            result=results.get(step, {}),
            loop_id=loop_id,
            finished=then,
        )
        records.append({"project": project, "step": step, "key": key, "content": database.plain(record)})
        if folders:
            aged(state / "work" / step / key[:16] / "output.bin", days)
    if folders:
        aged(state / "pages" / loop_id / "card.html", days)
    tags = {
        KEY: f"work{number}",
        "loopline.loop_id": loop_id,
        "loopline.raw": f"raw{number}.dir",
        "loopline.dataset": f"prepared{number}.dir",
    }
    with database.writing(workspace.state) as connection:
        database.upsert(connection, step_records, *records, key_columns=["project", "step", "key"])
        row = {"loop_id": loop_id, "project": project, "saved": number, "state": "finished"}
        folder = str(workspace.root / "projects" / project)
        connection.execute(loops.insert().values(**row, folder=folder, trigger="schedule", began=then, ended=then))
        if version:
            versions.save(connection, project, StoredVersion(str(number), f"run{number}", "", tags, then))
    return loop_id


def crown(workspace: Workspace, project: str, version: str, action: str = "promote") -> None:
    """Make a version the champion."""
    with database.writing(workspace.state) as connection:
        newest = champion_moves.read(connection, project, limit=1)
        number, before = (newest[0].number, newest[0].after) if newest else (0, None)
        fields = {"by": "test", "reason": "", "action": action, "before": before, "after": version}
        champion_moves.record(connection, project, number, **fields)


def record_names(workspace: Workspace) -> list[str]:
    """Return the steps and loops of all records: `train tiny-3`, sorted; withdrawn ones begin with `gc:`."""
    with database.reading(workspace.state) as connection:
        rows = connection.execute(select(step_records.c.step, step_records.c.content)).all()
    return sorted(f"{row.step} {row.content['loop_id']}" for row in rows)
