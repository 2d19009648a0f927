"""The check before an upgrade: whether this version of Loopline reads a workspace that an older one wrote.

Nothing in the workspace is changed. An SQLite database is copied into a temporary folder and migrated there, so that
its rows are read as they will be after the upgrade; a Postgres database that would be migrated is not read.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from models.errors import LooplineError, first_of, one_line
from models.pipeline.steps import STEPS
from tasks.host import database, stores
from tasks.host.sqlite_files import copy_unchanged
from tasks.host.workspace import Workspace
from tasks.loop.history import last_loops
from tasks.operations.doctor import Finding, packages
from tasks.platform.services import supervisor
from tasks.ranks.places import checked_spec
from tasks.release.fetch_and_verify import try_out
from tasks.state import registered_models
from tasks.state.champion_moves import serving_state
from tasks.state.step_records import recorded_projects, unreadable_records

SHOWN = 5


def examine(workspace: Workspace) -> list[Finding]:
    """Run all checks; nothing is changed.

    Returns:
        What is `wrong` needs its step before the upgrade; `warn` is a step that the upgrade takes or asks for.
    """
    findings = [packages(), _platform(workspace), *_specs(workspace), *_mlflow(workspace)]
    with tempfile.TemporaryDirectory() as folder:
        state = workspace.state if database.is_shared() else Path(folder)
        try:
            if not database.is_shared() and not database.is_absent(workspace.state):
                copy_unchanged(workspace.state / database.FILE, state)
            revision = database.stored_revision(state)
        except LooplineError as error:
            return [*findings, _unread(workspace, state, error, "no version of this program reads it as it is")]
        findings.append(_schema(workspace, revision))
        if revision is None or (database.is_shared() and revision != database.REVISIONS[-1]):
            return findings
        try:
            return [*findings, *_rows(workspace, state)]  # the first question migrates the copy
        except LooplineError as error:
            return [*findings, _unread(workspace, state, error, "keep the version that wrote them")]


def _unread(workspace: Workspace, state: Path, error: LooplineError, cure: str) -> Finding:
    return Finding("state", "wrong", str(error).replace(str(state), str(workspace.state)), cure)


def _platform(workspace: Workspace) -> Finding:
    if supervisor(workspace):
        return Finding(
            "platform", "wrong", "runs", "end it, and all servers, by the version that started it: `loopline down`"
        )
    return Finding("platform", "ok", "down")


def _specs(workspace: Workspace) -> Iterator[Finding]:
    """Yield each spec that this version refuses, with its own message, which names the cure."""
    projects, refused = workspace.projects(), 0
    for project in projects:
        try:
            checked_spec(project, is_for_here=False)
        except LooplineError as error:
            refused += 1
            yield Finding("spec", "wrong", "; ".join(str(error).splitlines()), "correct the lines named")
    if not refused:
        yield Finding("specs", "ok", f"all {len(projects)} are read")


def _schema(workspace: Workspace, revision: str | None) -> Finding:
    """Return what the first command of this version does to the database."""
    newest, place = database.REVISIONS[-1], database.shown(database.address(workspace.state))
    if revision is None:
        return Finding("state", "ok", f"{place}: empty: made by the first loop")
    if revision == newest:
        return Finding("state", "ok", f"{place}: schema {newest}, as this version's")
    if database.is_shared():
        step = f"make a dump; then `LOOPLINE_DUMPED={newest} loopline doctor` migrates it"
    else:
        step = f"the first command migrates it, and keeps the file as {database.FILE}.before-{newest}"
    return Finding("state", "warn", f"{place}: schema {revision}, this version has {newest}", step)


def _mlflow(workspace: Workspace) -> Iterator[Finding]:
    """Compare the schema of MLflow's own file with that of the MLflow installed here, which refuses an older one."""
    uri = stores.environment(workspace)["MLFLOW_TRACKING_URI"]
    package = find_spec("mlflow")
    if not stores.is_embedded(uri) or not stores.has_file(uri) or package is None or package.origin is None:
        return
    from alembic.script import ScriptDirectory

    head = ScriptDirectory(str(Path(package.origin).parent / "store" / "db_migrations")).get_current_head()
    try:
        with tempfile.TemporaryDirectory() as folder:
            copy = copy_unchanged(stores.database_file(uri), Path(folder))
            with contextlib.closing(sqlite3.connect(copy)) as connection:
                row = connection.execute("select version_num from alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        yield Finding("tracking", "wrong", f"{uri}: {one_line(error)}", "put MLflow's file back from a copy")
        return
    if row and row[0] == head:
        yield Finding("tracking", "ok", f"MLflow's schema is {head}, as of the MLflow installed here")
    else:
        cure = f"copy the file, then `mlflow db upgrade {uri}` once, after the upgrade"
        yield Finding("tracking", "warn", f"MLflow's schema is {row and row[0]}, its own here has {head}", cure)


def _rows(workspace: Workspace, state: Path) -> Iterator[Finding]:
    """Yield what is said by the rows of a database: loops that run, records and champions that are not readable."""
    projects = recorded_projects(state)
    loops = last_loops(state, [*projects, *(project.folder.name for project in workspace.projects())])
    running = [loop.loop_id for loop in loops.values() if loop.state == "running"]
    if running:
        cure = "let them end, or end them; `loopline reap` of the version that ran them closes those that died"
        yield Finding("loops", "wrong", f"not closed: {first_of(running, SHOWN)}", cure)
    else:
        yield Finding("loops", "ok", f"none runs; of {len(loops)} projects the last one is read")
    unread = unreadable_records(state, projects, [step.name for step in STEPS])
    cure = "these steps run again, as if they had never run"
    yield (
        Finding("records", "warn", f"not read: {first_of(unread, SHOWN)}", cure)
        if unread
        else Finding("records", "ok", f"the newest of each step of {len(projects)} projects are read")
    )
    for name in registered_models.projections(state):
        yield from _champion(workspace, state, name)


def _champion(workspace: Workspace, state: Path, name: str) -> Iterator[Finding]:
    """Let a champion whose files are on this machine predict, in a process of its own."""
    serving = serving_state(state, name)
    if serving is None or serving.champion is None:
        return
    version, place = serving.champion, serving.champion.place.replace(state.as_uri(), workspace.state.as_uri(), 1)
    folder = Path(urlsplit(place).path)
    if not place.startswith("file:") or not folder.is_dir():
        yield Finding(
            "champion", "ok", f"{name} version {version.number}: its files are elsewhere ({place}): not tried"
        )
        return
    try:
        try_out(name, version.number, folder)
    except LooplineError as error:
        cure = f"`loopline run {name}` trains it anew, before servers are upgraded"
        yield Finding("champion", "wrong", f"{name} version {version.number}: {one_line(error)}", cure)
    else:
        yield Finding("champion", "ok", f"{name} version {version.number} loads and predicts")
