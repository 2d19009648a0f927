"""Moves a workspace's own databases to Postgres: ours, MLflow's, Optuna's and Prefect's.

Each tool makes its own tables; all rows of a database are then copied in one transaction. The files are only read, and
keep their rows; at the end that of the state database is marked as moved, so that no command goes on in it. A call that
was interrupted is made again: what is complete is known by its mark and left alone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from models.errors import StoreError, UsageError
from tasks.host import database, stores
from tasks.host.database_copy import (
    Contents,
    contents_of,
    copy_rows,
    create_database,
    databases_at,
    is_more,
    mark_at,
    mark_moved,
    refuse_without_rights,
    rows_at,
    writing_to,
)
from tasks.host.old_schema import moved_to, take_back
from tasks.host.store_addresses import (
    MIGRATE_TO,
    OPTUNA_STORAGE,
    PREFECT_API,
    PREFECT_DATABASE,
    STATE_URL,
    TRACKING_URI,
    normalised,
    without_password,
)
from tasks.host.workspace import Workspace
from tasks.loop.history import without_loops
from tasks.mlflow import embedded_store
from tasks.platform.services import supervisor
from tasks.prefect.prefect_server import PrefectServer
from tasks.state import versions
from tasks.tools.study_tables import copy_studies, make_study_tables

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

MOST_NAME_BYTES = 63
"""Postgres cuts longer names of databases."""
PARAMETERS = {"application_name", "connect_timeout", "host", "port", "sslmode"}
State = Literal["to move", "moved", "nothing here", "elsewhere"]
"""moved: an earlier call moved it. elsewhere: the environment names another store already."""


@dataclass(frozen=True)
class _Store:
    """One of the four databases, and how its tables are made."""

    name: str
    variable: str
    suffix: str
    seeds: Mapping[str, int]
    """Rows that a tool writes into its new tables."""


_STORES = (
    _Store("state", STATE_URL, "", {}),
    _Store("mlflow", TRACKING_URI, "_mlflow", {"experiments": 1, "workspaces": 1}),
    _Store("optuna", OPTUNA_STORAGE, "_optuna", {}),
    _Store("prefect", PREFECT_DATABASE, "_prefect", {}),
)


@dataclass(frozen=True)
class Move:
    """What happens to one database.

    Args:
        name: state, mlflow, optuna or prefect.
        variable: The environment variable that names the new place.
        target: Its address there, without a driver.
        state: What is to be done.
        contents: What the file holds.
        is_made: The target database exists.
    """

    name: str
    variable: str
    target: URL
    state: State
    contents: Contents
    is_made: bool


def plan_moves(workspace: Workspace, to: str) -> list[Move]:
    """Return what a migration would do; nothing is changed.

    Args:
        workspace: The workspace.
        to: The address of the state database; the others have its name and a suffix, on the same server.

    Raises:
        UsageError: The address is not one of a Postgres database.
        StoreError: The server cannot be reached, or a database there has rows of others.
    """
    server = _server(to)
    with _source_files(workspace) as sources:
        return _plans(sources, server)


def move(workspace: Workspace, to: str, say: Callable[[str], None]) -> list[Move]:
    """Move the databases; return what is true then.

    Args:
        workspace: The workspace, in which nothing runs.
        to: As of `plan_moves`.
        say: Receives a sentence for each database.

    Raises:
        UsageError: As of `plan_moves`.
        StoreError: As of `plan_moves`, or a loop or a server runs, or a row does not fit: earlier databases are moved.
    """
    server, moves = _server(to), []
    with _alone(workspace), _source_files(workspace) as sources:
        for store, planned in zip(_STORES, _plans(sources, server), strict=True):
            source = sources[store.name]
            is_made = planned.is_made
            if not is_made and planned.state != "elsewhere":  # the tools make tables, but no database
                create_database(server, str(planned.target.database))
                is_made = True
            if planned.state != "to move" or source is None:
                moves.append(replace(planned, is_made=is_made))
                continue
            _MAKERS[store.name](workspace, _address(store, server))
            copy_rows(source, planned.target, planned.contents, store.seeds)
            say(f"{store.name}: {planned.contents.total} rows copied to {planned.target.database}")
            moves.append(replace(planned, state="moved", is_made=True))
        state = sources["state"]
        if state is not None and moves[0].state == "moved" and not moved_to(state):
            with writing_to(moves[0].target) as connection:
                versions.place_whole(connection, workspace.state)
            mark_moved(state, moves[0].contents, _shown(moves[0].target))
    return moves


def move_back(workspace: Workspace) -> str:
    """Use the file of the state database again, with the rows that it had at the move; return where it was moved.

    Raises:
        UsageError: The environment still names a database elsewhere.
        StoreError: The file was not moved, or cannot be written.
    """
    if database.is_shared():
        raise UsageError(
            f"--back: {STATE_URL} is set, so the file is not used: unset the variables that `loopline migrate` printed"
        )
    return take_back(workspace.state / database.FILE)


def environment_of(moves: list[Move]) -> dict[str, str]:
    """Return the variables that make Loopline use the new databases, with passwords shown as ***."""
    named = [planned for planned in moves if planned.state != "elsewhere"]
    return {planned.variable: _plain(planned.target).render_as_string() for planned in named}


def _server(to: str) -> URL:
    server = make_url(normalised(MIGRATE_TO, to)).set(drivername="postgresql+psycopg")
    if not server.database:
        raise UsageError(f"{MIGRATE_TO}: got no database in the address, expected postgresql://user@host/loopline")
    longest = MOST_NAME_BYTES - max(len(store.suffix) for store in _STORES)
    if len(server.database.encode()) > longest:  # Postgres would cut the four names to one
        raise UsageError(f"{MIGRATE_TO}: got database {server.database}, expected a name of at most {longest} bytes")
    unknown = sorted(set(server.query) - PARAMETERS)
    if unknown:
        raise UsageError(
            f"{MIGRATE_TO}: got the parameter {unknown[0]}, expected only {', '.join(sorted(PARAMETERS))}, which the "
            "drivers of all four tools know: set Postgres' own variable instead, as PGSSLROOTCERT for sslrootcert"
        )
    return server


def _plans(sources: Mapping[str, Path | None], server: URL) -> list[Move]:
    existing = databases_at(server)
    return [_plan(store, server, sources[store.name], existing) for store in _STORES]


def _plan(store: _Store, server: URL, source: Path | None, existing: set[str]) -> Move:
    target = server.set(database=f"{server.database}{store.suffix}")
    is_made = target.database in existing
    if source is None:
        state: State = "elsewhere" if _is_elsewhere(store) else "nothing here"
        return Move(store.name, store.variable, target, state, Contents({}, ""), is_made)
    address = moved_to(source) if store.name == "state" else ""
    if address not in ("", _shown(target)):
        raise StoreError(
            f"{MIGRATE_TO}: got {_shown(target)}, but {source} was moved to {address}: name that one, or take the "
            "file back first (`loopline migrate --back`); nothing was changed"
        )
    contents = contents_of(source)
    if not contents.total:
        return Move(store.name, store.variable, target, "nothing here", contents, is_made)
    if is_made:
        refuse_without_rights(target)
    mark = mark_at(target) if is_made else None
    if mark == contents:
        return Move(store.name, store.variable, target, "moved", contents, is_made)
    rows = rows_at(target) if is_made else {}
    if mark or is_more(rows, store.seeds):
        what = "an older copy of this workspace" if mark else f"{sum(rows.values())} rows already"
        raise StoreError(
            f"{MIGRATE_TO}: {_plain(target).render_as_string()} holds {what}, expected an empty database: "
            "drop it, or name another one; nothing was changed"
        )
    return Move(store.name, store.variable, target, "to move", contents, is_made)


def _is_elsewhere(store: _Store) -> bool:
    """Return whether the environment names another store than the workspace's own file."""
    if store.name == "prefect" and os.environ.get(PREFECT_API):
        return True
    named = os.environ.get(store.variable, "")
    return bool(named) and not (store.name == "mlflow" and stores.is_embedded(named))


@contextlib.contextmanager
def _source_files(workspace: Workspace) -> Iterator[dict[str, Path | None]]:
    """Yield the SQLite file of each database; studies in a journal are first copied into one, by Optuna itself."""
    state = workspace.state
    files: dict[str, Path | None] = {
        "state": state / database.FILE,
        "mlflow": stores.database_file(os.environ[TRACKING_URI]),
        "prefect": state / "prefect" / "prefect.db",
        "optuna": None,
    }
    with tempfile.TemporaryDirectory(prefix="loopline-") as folder:
        for store in _STORES:
            path = files[store.name]
            if _is_elsewhere(store) or (path is not None and not path.exists()):
                files[store.name] = None
            elif store.name == "optuna":
                files["optuna"] = copy_studies(workspace, Path(folder) / "studies.db")
        yield files


@contextlib.contextmanager
def _alone(workspace: Workspace) -> Iterator[None]:
    """Keep loops from running during the block.

    Raises:
        StoreError: The platform, a loop or Prefect's server runs.
    """
    if supervisor(workspace):
        raise StoreError("the platform runs: end it first by `loopline down`; nothing was changed")
    if PrefectServer(workspace).state():
        raise StoreError("the workspace's Prefect server runs: end it first by `loopline down`; nothing was changed")
    is_moved = bool(moved_to(workspace.state / database.FILE))  # then no loop can begin here, and nobody reads the file
    with contextlib.nullcontext() if is_moved else without_loops(workspace), stores.mlflow_lock(workspace):
        yield


def _make_mlflow_tables(workspace: Workspace, address: str) -> None:
    del workspace
    try:
        embedded_store.make_tables(address)
    except SQLAlchemyError as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"mlflow: its tables cannot be made: {reason}; no rows were copied into it") from error


def _make_prefect_tables(workspace: Workspace, address: str) -> None:
    """Run Prefect's own command, in a process of its own: Prefect reads its settings when it is imported."""
    environ = {**os.environ, **stores.environment(workspace), PREFECT_DATABASE: address}
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
    completed = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if completed.returncode:
        lines = [line for line in (completed.stderr or completed.stdout).splitlines() if line[:1].isalpha()]
        reason = " ".join(line for line in lines if "Error" in line or line == lines[-1])[:300]
        raise StoreError(f"prefect: `prefect server database upgrade` failed: {reason}; no rows were copied into it")


_MAKERS: Mapping[str, Callable[[Workspace, str], None]] = {
    "state": lambda _, address: database.make_tables(address),
    "mlflow": _make_mlflow_tables,
    "optuna": lambda _, address: make_study_tables(address),
    "prefect": _make_prefect_tables,
}


def _address(store: _Store, server: URL) -> str:
    """Return the address of a database on a server, with the driver of its tool."""
    target = _plain(server.set(database=f"{server.database}{store.suffix}"))
    return normalised(store.variable, target.render_as_string(hide_password=False))


def _shown(target: URL) -> str:
    return without_password(str(_plain(target)))


def _plain(target: URL) -> URL:
    return target.set(drivername="postgresql")
