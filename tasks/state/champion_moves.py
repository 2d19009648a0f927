"""The moves of champions, as rows of the state database: the newest row of a project is what serves."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import GateRefused
from models.serving.registry import ChampionMove, RegisteredVersion, back_from, champion_words
from models.serving.registry_comparison import Projection
from tasks.host import database
from tasks.state import registered_models, versions
from tasks.state.versions import address_of, challenger_of, version_of
from tasks.state.workspace_id import own_id

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping, Select

_FIELDS = {name: "actor" if name == "by" else name for name in ChampionMove.model_fields}
"""The column of each field."""


@dataclass(frozen=True)
class ServingState:
    """What the newest move of a project says, and what stands beside it.

    Args:
        move: The newest move.
        champion: The version that it names, with its tags; None: no version serves.
        challenger: The version that was judged last and is not the champion.
        is_foreign: Another workspace owns the registered model: its moves are in that workspace's database.
    """

    move: ChampionMove
    champion: RegisteredVersion | None
    challenger: str | None
    is_foreign: bool


def champion_of(root: Path, project: str) -> RegisteredVersion | None:
    """Return the champion with its tags, by one query; None: no version serves, or another workspace says which.

    Args:
        root: The workspace's state folder, `.loopline`.
        project: The project's name.

    Raises:
        StoreError: The database cannot be used, or MLflow holds moves that were never read.
    """
    with database.reading(root) as connection:
        state = serving_state(root, project)
        if state is None:
            registered_models.refuse_unread(connection, project)
    return state.champion if state and not state.is_foreign else None


def serving_state(root: Path, project: str) -> ServingState | None:
    """Return what the newest move of a project says, by one query; None: there is no move.

    Args:
        root: The workspace's state folder, `.loopline`.
        project: The project's name.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.reading(root) as connection:
        row = connection.execute(_newest(), {"project": project}).mappings().first()
    if row is None:
        return None
    move = _move(row)
    champion = move.after and RegisteredVersion(
        number=move.after, tags=move.serving(row["tags"] or {}), place=address_of(root, row["place"] or "")
    )
    return ServingState(
        move, champion or None, row["challenger"], bool(row["owner"]) and row["owner"] != row["workspace_id"]
    )


@functools.cache
def _newest() -> Select[Any]:
    """Return the statement for the newest move of `:project`; made once, since SQLAlchemy takes .5 ms to make it."""
    from sqlalchemy import bindparam, select

    from tasks.host.tables import champion_moves, registered_models, versions, workspace

    moves, model = champion_moves, registered_models
    is_champion = (versions.c.project == moves.c.project) & (versions.c.version == moves.c.after)
    joined = moves.outerjoin(versions, is_champion).outerjoin(model, model.c.project == moves.c.project)
    workspace_id = select(workspace.c.id).scalar_subquery().label("workspace_id")
    rows = select(*moves.c, versions.c.tags, versions.c.place, model.c.challenger, model.c.owner, workspace_id)
    of_project = rows.select_from(joined).where(moves.c.project == bindparam("project"))
    return of_project.order_by(moves.c.number.desc()).limit(1)


def may_record(root: Path) -> bool:
    """Return whether this process's account may record moves: a role for servers only reads them.

    Args:
        root: The workspace's state folder, `.loopline`.

    Raises:
        StoreError: The database cannot be used.
    """
    from sqlalchemy import func, select

    from tasks.host.tables import champion_moves

    with database.reading(root) as connection:
        if connection.dialect.name == "sqlite":
            return True
        return bool(connection.scalar(select(func.has_table_privilege(champion_moves.name, "insert"))))


def named_version(root: Path, project: str, name: str) -> RegisteredVersion | None:
    """Return the version that an alias (`champion`, `challenger`, `previous`) or a number names; None: there is none.

    Raises:
        StoreError: The database cannot be used, or MLflow holds versions that were never read.
    """
    with database.reading(root) as connection:
        if name == "champion":
            return champion_of(root, project)
        if name == "challenger":
            stored = challenger_of(root, project)
        elif name == "previous":
            back = back_from(read(connection, project)[::-1], versions.removed(connection, project))
            stored = version_of(root, project, back) if back is not None else None
        else:
            stored = version_of(root, project, name)
        if stored is None:
            registered_models.refuse_unread(connection, project)
            return None
    return stored.registered


def named_versions(
    root: Path, moves: Mapping[str, Sequence[ChampionMove]], numbers: Mapping[str, Collection[str]]
) -> dict[str, dict[str, RegisteredVersion]]:
    """Return versions of several projects by alias and number, in three queries; those that do not exist are left out.

    A project whose moves another workspace has, or that must be read from MLflow first, is left out.

    Args:
        root: The workspace's state folder, `.loopline`.
        moves: The newest moves of each project, newest first.
        numbers: The numbers that are needed besides the aliases, by project.
    """
    with database.reading(root) as connection:
        projections, own = registered_models.projections(root), own_id(connection)
        removed = versions.removed_of(connection, [*numbers])
        aliases: dict[str, dict[str, str | None]] = {}
        for project in numbers:
            projection, of_project = projections.get(project, Projection(looked=0.0)), moves.get(project, [])
            if projection.owner in ("", own) and (of_project or projection.looked is not None):
                aliases[project] = {
                    "champion": of_project[0].after if of_project else None,
                    "challenger": projection.challenger,
                    "previous": back_from(of_project[::-1], removed.get(project, set())),
                }
        needed = {project: {*numbers[project], *of_project.values()} for project, of_project in aliases.items()}
        chosen = [(project, number) for project, of_project in needed.items() for number in of_project if number]
        stored = versions.read_these(connection, chosen)
    return {
        project: _by_name(root, project, of_project, moves.get(project, ()), stored)
        for project, of_project in aliases.items()
    }


def _by_name(
    root: Path,
    project: str,
    aliases: Mapping[str, str | None],
    moves: Sequence[ChampionMove],
    stored: Mapping[tuple[str, str], RegisteredVersion],
) -> dict[str, RegisteredVersion]:
    named = {
        number: version.model_copy(update={"place": address_of(root, version.place)})
        for (owner, number), version in stored.items()
        if owner == project
    }
    named |= {alias: named[number] for alias, number in aliases.items() if number and number in named}
    if champion := aliases["champion"]:
        version = named.get(champion, RegisteredVersion(number=champion))
        named["champion"] = version.model_copy(update={"tags": moves[0].serving(version.tags)})
    return named


def moves_of(root: Path, project: str, limit: int | None = None) -> list[ChampionMove]:
    """Return a project's moves, newest first, at most `limit`."""
    with database.reading(root) as connection:
        return read(connection, project, limit)


def read(connection: Connection, project: str, limit: int | None = None) -> list[ChampionMove]:
    """Return a project's moves, newest first, at most `limit`, by a connection."""
    from sqlalchemy import select

    from tasks.host.tables import champion_moves

    rows = select(champion_moves).where(champion_moves.c.project == project)
    newest = rows.order_by(champion_moves.c.number.desc()).limit(limit)
    return [_move(row) for row in connection.execute(newest).mappings()]


def newest_moves(root: Path, projects: Sequence[str], limit: int) -> dict[str, list[ChampionMove]]:
    """Return the newest moves of projects, newest first, at most `limit` of each; one without moves is left out."""
    from tasks.host.tables import champion_moves

    moves: dict[str, list[ChampionMove]] = {}
    if not projects:
        return moves
    rows = database.newest(champion_moves.c.number, limit, list(champion_moves.c), project=projects)
    with database.reading(root) as connection:
        for row in connection.execute(rows).mappings():
            moves.setdefault(row["project"], []).append(_move(row))
    return moves


def record(connection: Connection, project: str, after_number: int, **fields: Any) -> ChampionMove:
    """Insert the next move of a project, in the transaction that has checked whether it may be made.

    Args:
        connection: A connection that writes (`database.writing`).
        project: The project's name.
        after_number: The number of the newest move that the decision knew; 0: there was none.
        fields: Of `ChampionMove`, without number, id and time.

    Raises:
        GateRefused: Another move came first.
    """
    newest = next(iter(read(connection, project, limit=1)), None)
    if newest and newest.number != after_number:
        raise GateRefused(
            f"{project}: {newest.by} moved the champion meanwhile ({newest.action}: "
            f"{champion_words(newest.after)}): look again with `loopline release {project}`, then decide"
        )
    move = ChampionMove(number=after_number + 1, id=uuid.uuid4().hex, at=database.now(connection), **fields)
    insert(connection, project, move)
    return move


def insert(connection: Connection, project: str, move: ChampionMove) -> None:
    """Insert a move that has its number and id, as one that was read back from MLflow's journal."""
    from tasks.host.tables import champion_moves

    plain = database.plain(move)
    row = {column: plain[name] for name, column in _FIELDS.items()}
    connection.execute(champion_moves.insert().values(project=project, **row))


def _move(row: RowMapping) -> ChampionMove:
    return ChampionMove.model_validate({name: row[column] for name, column in _FIELDS.items()})
