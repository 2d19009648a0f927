"""Scheduled monitoring runs of projects with nothing new, which end before a process is started for them.

The schedule is Prefect's. A run that it begins costs 6 CPU-s, most of them imports, and a project without traffic has
four an hour. So a finished run notes what it has seen, as times and sizes of files; the compactor compares them shortly
before the next scheduled run, and ends that run as Skipped if they are the same. Runs that somebody asks for, or that
an event begins, are never skipped.
"""

from __future__ import annotations

import contextlib
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from models.errors import LooplineError
from models.files import read_json, write_json
from models.project_spec.references import is_own_code
from models.sources.address import is_address
from tasks.host import database
from tasks.host.store_addresses import ROOT
from tasks.host.workspace import Project, Workspace
from tasks.prefect.flow_runs import all_runs, ask
from tasks.prefect.prefect_server import PrefectServer
from tasks.prefect.worker import pool_of
from tasks.state.champion_moves import moves_of
from tasks.state.ingest_segments import waits

AHEAD_S = 200.0
"""How far ahead runs are looked at: the compactor looks each minute, and the worker fetches up to two minutes ahead."""
QUIET_S = 120.0
"""Files that changed so recently may still be written, and are looked at once more."""
DAY_S = 86_400.0
SEEN_FILE = Path("monitoring") / "seen.json"

Stats = dict[str, list[int]]
"""The time of the last change, in ns, and the size in bytes of files and folders, by path; the last move's number."""


def stats_of(project: Project) -> Stats | None:
    """Return what a monitoring run depends on: spec, source, logs of predictions and labels, and the champion.

    None if only own code, an address or a database can tell, or where other machines have logs of this project.
    """
    spec = project.spec()
    named = spec.data.source
    if not isinstance(named, str) or is_own_code(named) or is_address(named):
        return None
    if database.is_shared() or os.environ.get(ROOT, "").startswith("s3://"):
        return None
    state, source = project.state(spec.name), project.folder / named
    logs = [state / name / "_delta_log" for name in ("predictions", "labels")]
    moves = moves_of(project.workspace.state, spec.name, limit=1)
    files = _stats([project.spec_path, source, *sorted(source.rglob("*")), *logs])
    return {**files, "champion": [moves[0].number if moves else 0]}


def remember(state: Path, before: Stats | None, now: float | None = None) -> None:
    """Note that a monitoring run has seen what there was when it began.

    Args:
        state: The project's folder under `.loopline/projects/`.
        before: The result of `stats_of` then.
        now: Unix time; default: the machine's.

    Raises:
        StoreError: The note cannot be written.
    """
    now = time.time() if now is None else now
    changed = max((time_ns for time_ns, *_ in (before or {}).values()), default=0) / 1e9
    seen = before if changed < now - QUIET_S else None
    write_json(state / SEEN_FILE, {"at": now, "stats": seen})


def is_idle(project: Project, now: float) -> bool:
    """Return whether a monitoring run would see what the last one saw; false once a day."""
    state = project.state(project.spec().name)
    seen = read_json(state / SEEN_FILE)
    stats = seen.get("stats")
    if not stats or now - seen["at"] > DAY_S or waits(state):
        return False
    return bool(stats == stats_of(project))


def skip(workspace: Workspace) -> list[str]:
    """End the scheduled monitoring runs of idle projects that are due soon; return a line of text for each.

    Raises:
        StoreError: Prefect's server does not answer as it should.
    """
    api, now = PrefectServer(workspace).api(), time.time()
    state = {"type": "COMPLETED", "name": "Skipped", "message": "nothing new since the last monitoring run"}
    lines = []
    for run in all_runs(api, _due(pool_of(workspace), now)) if api else []:
        project = str(run["parameters"].get("project", ""))
        if run["auto_scheduled"] and _is_named_idle(workspace, project, now):
            ask(str(api), f"flow_runs/{run['id']}/set_state", {"state": state, "force": True})
            lines.append(f"{project}: monitoring skipped: {state['message']}")
    return lines


def _is_named_idle(workspace: Workspace, name: str, now: float) -> bool:
    """Return whether a deployment's project is idle; the run of one that cannot be read starts, and says why."""
    with contextlib.suppress(LooplineError):
        project = workspace.project(name)
        return is_idle(project, now)
    return False


def _due(pool: str, now: float) -> dict[str, Any]:
    until = datetime.fromtimestamp(now + AHEAD_S, UTC).isoformat()
    return {
        "work_pools": {"name": {"any_": [pool]}},
        "flows": {"name": {"any_": ["monitor"]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}, "expected_start_time": {"before_": until}},
    }


def _stats(paths: list[Path]) -> Stats:
    stats = {}
    for path in paths:
        try:
            stat = path.stat()
        except OSError:  # not there yet
            continue
        stats[str(path)] = [stat.st_mtime_ns, stat.st_size]
    return stats
