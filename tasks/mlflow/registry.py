"""The registry of one project: versions registered once per key in MLflow, and the moves of the champion as rows.

MLflow sets an alias whatever its old target is, so of two concurrent promotions the last one would win without notice.
Here a move is one transaction of the state database: it checks that the champion is still the one that the decision
knew, and inserts the row of the move with its event. MLflow's aliases and tags follow (`tasks/mlflow/carrier.py`).
"""

from __future__ import annotations

import functools
import getpass
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from models.errors import GateRefused, UsageError
from models.serving.registry import (
    KEY,
    UNRECORDED,
    ChampionMove,
    RegisteredVersion,
    back_from,
    champion_words,
    champions_in_force,
    described,
    version_words,
)
from models.serving.registry_comparison import OWNER, next_move
from models.serving.releases import new_act
from tasks.host import database, processes
from tasks.host.leases import Lease
from tasks.host.locks import held
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.carrier import Carrier
from tasks.mlflow.client import reaching_store
from tasks.mlflow.embedded_store import open_client
from tasks.mlflow.garbage import logged_model_of
from tasks.mlflow.stored_versions import stored_version
from tasks.state import champion_moves, registered_models, versions
from tasks.state.champion_moves import champion_of, moves_of
from tasks.state.versions import StoredVersion
from tasks.state.workspace_id import workspace_id

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from sqlalchemy import Connection

LOCK_TIMEOUT_S = 60.0
MOST_REASON = 1000
"""Characters of a reason: a tag of MLflow holds 5,000 with the rest of the move."""
Decide = Callable[[Sequence[ChampionMove], set[str]], ChampionMove]


class Announcer(NamedTuple):
    """Tells of moves: `store` writes the event in the transaction of the move, `deliver` sends what was stored."""

    store: Callable[[Connection, ChampionMove], None]
    deliver: Callable[[], object]


def _unchecked(_: Connection) -> None:
    """Check nothing: a person or a server holds no lease."""


class Registry:
    """The registered model of one project.

    Args:
        workspace: The workspace.
        model: The registered model, which has the project's name.
        announcer: Tells of each move.
        actor: Who moves it; default: account and host.
        is_closed: Returns whether promotions go through Loopline alone; default: a move in MLflow counts.
    """

    def __init__(
        self,
        workspace: Workspace,
        model: str,
        announcer: Announcer,
        actor: str = "",
        is_closed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._workspace = workspace
        self._announcer = announcer
        self.actor = actor or f"{getpass.getuser()}@{socket.gethostname()}"
        self.model = model
        self.carrier = Carrier(workspace, model, announcer.store, is_closed)

    @functools.cached_property
    def _store(self) -> MlflowClient:
        """Made at its first use: in a workspace that cannot be written the lock says so, at once."""
        return open_client(self._workspace)

    def find(self, key: str) -> str | None:
        """Return the version that was registered for this key and not removed; None if there is none.

        One that no row names was registered by a process that was killed before it wrote the row.
        """
        with reaching_store():
            matches = self._store.search_model_versions(f"name = '{self.model}' and tags.`{KEY}` = '{key}'")
        with database.reading(self._workspace.state) as connection:
            removed = versions.removed(connection, self.model)
        there = [version for version in matches if str(version.version) not in removed]
        ordered = sorted((UNRECORDED in version.tags, int(version.version)) for version in there)
        return str(ordered[0][1]) if ordered else None

    def create(
        self,
        key: str,
        source: str,
        run_id: str,
        model_id: str | None,
        tags: Mapping[str, str],
        description: str,
        lease: Lease | None = None,
    ) -> StoredVersion:
        """Register a version for `key`, or return the version that was registered for it before.

        Raises:
            LeaseLostError: Another process has taken the lease: the version is named by no row, unless that one did.
        """
        path = self._workspace.locks / f"registry-{self.model}.lock"
        busy = f"{self.model}: another process holds the registry for {LOCK_TIMEOUT_S:g} s"
        with held(path, lambda: busy, LOCK_TIMEOUT_S), reaching_store():
            version = self.find(key)
            if version is None:
                self._ensure_model(description)
                whose = {**tags, KEY: key, UNRECORDED: "{host}:{pid}".format(**processes.identity())}
                created = self._store.create_model_version(
                    self.model, source, run_id=run_id, tags=whose, model_id=model_id, description=described(tags)
                )
                version = str(created.version)
            return self.judge(version, tags, lease)

    def judge(self, version: str, tags: Mapping[str, str], lease: Lease | None = None) -> StoredVersion:
        """Set tags of a version, and make it the challenger unless it is the champion: in MLflow, then by rows."""
        with reaching_store():
            registered = self._store.get_model_version(self.model, version)
            for name, value in tags.items():
                if registered.tags.get(name) != value:
                    self._store.set_model_version_tag(self.model, version, name, value)
            text = described({**registered.tags, **tags})
            if tags and text != (registered.description or ""):
                self._store.update_model_version(self.model, version, text)
            stored = stored_version(self._store, registered, self._workspace.state)
        stored = replace(stored, tags={**stored.tags, **tags})
        with database.writing(self._workspace.state) as connection:
            if lease:
                lease.check(connection)
            versions.save(connection, self.model, stored)
            newest = champion_moves.read(connection, self.model, limit=1)
            is_champion = bool(newest) and newest[0].after == version
            if not is_champion:
                self._set_challenger(connection, version)
        with reaching_store():
            if not is_champion:
                self._store.set_registered_model_alias(self.model, "challenger", version)
            if UNRECORDED in registered.tags:
                self._store.delete_model_version_tag(self.model, version, UNRECORDED)
        return stored

    def logged_model(self, version: str) -> str | None:
        """Return the id of the logged model that a version was made of; None if it was made of files.

        Raises:
            StoreError: The registry is unavailable.
        """
        with reaching_store():
            return logged_model_of(self._store.get_model_version(self.model, version))

    def tags(self, version: str) -> dict[str, str]:
        """Return the tags of a version.

        Raises:
            UsageError: There is no such version.
            StoreError: The registry is unavailable.
        """
        state = self._workspace.state
        registered = registry_reader.named(state, self.model, version)
        if registered is None:
            numbers = (
                ", ".join([stored.number for stored in versions.versions_of(state, self.model)][-8:]) or "none yet"
            )
            raise UsageError(f"{self.model} has no version {version!r}: there is {numbers}")
        return registered.tags

    def champion(self) -> RegisteredVersion | None:
        """Return the champion; None: no version serves."""
        return champion_of(self._workspace.state, self.model)

    def challenger(self) -> str | None:
        """Return the version that was judged last and is not the champion; None if there is none."""
        return registered_models.projection_of(self._workspace.state, self.model).challenger

    def journal(self) -> list[ChampionMove]:
        """Return every move of the champion, oldest first; empty if nothing is registered."""
        return moves_of(self._workspace.state, self.model)[::-1]

    def look(self) -> None:
        """Record what was moved in MLflow, and carry there what waits; `carrier.trouble` says why if it cannot."""
        self.carrier.follow()
        self._announcer.deliver()

    def promote(
        self,
        version: str,
        expected: str | None,
        *,
        loop_id: str = "",
        reason: str = "",
        check: Callable[[Connection], None] = _unchecked,
    ) -> ChampionMove:
        """Make `version` the champion if the champion is still `expected`.

        A loop that was killed after the move and calls again gets its own move. A person is refused if `expected` is no
        longer the champion, even if `version` is the champion by now: somebody else made that move, for another reason.

        Args:
            version: The version.
            expected: The champion that the decision knew; None: there was none.
            loop_id: The loop that decided; empty for a person.
            reason: Why.
            check: Checks the loop's lease, in the transaction of the move.

        Raises:
            GateRefused: Somebody else moved the champion since; names the current champion.
            LeaseLostError: Another process has taken over the loop.
        """

        def decide(moves: Sequence[ChampionMove], removed: set[str]) -> ChampionMove:
            champion = moves[-1].after if moves else None
            if version in removed:
                raise GateRefused(f"{self.model}: version {version} was removed meanwhile: promote another")
            move_before = next((move for move in reversed(moves) if move.after == version), None)
            if champion == version and move_before and (loop_id or expected == version):
                return move_before
            mine = [move for move in moves if loop_id and (move.loop_id, move.after) == (loop_id, version)]
            if mine:
                return mine[-1]  # the loop was killed after its move: a person's later move stays valid
            if champion != expected:
                raise GateRefused(_moved(self.model, champion, expected, bool(loop_id)))
            best = None if loop_id else ""  # challengers are compared with what a person chose from now on
            return next_move(moves, action="promote", after=version, promotion=new_act(), best=best, loop_id=loop_id)

        return self.move(decide, reason, check)

    def rollback(self, reason: str = "", expected: str | None = None) -> ChampionMove:
        """Make the previous champion the champion again; repeated calls go further back.

        Args:
            reason: Why.
            expected: The champion that the caller saw; None: roll back any champion.

        Raises:
            GateRefused: There is no previous champion, or somebody else moved the champion since.
        """

        def decide(moves: Sequence[ChampionMove], removed: set[str]) -> ChampionMove:
            back = back_from(moves, removed)
            champion = moves[-1].after if moves else None
            if back is None:
                raise GateRefused(
                    f"{self.model}: nothing to roll back to, {_nobody(moves)}: `loopline promote` takes any version"
                )
            if expected is not None and champion != expected:
                raise GateRefused(
                    f"{self.model}: {champion_words(champion)}, not {expected}: look again, then roll back"
                )
            best = next((move.best for move in reversed(moves) if move.after == back), None)
            return next_move(moves, action="rollback", after=back, promotion=new_act(), best=best)

        return self.move(decide, reason)

    def move(self, decide: Decide, reason: str, check: Callable[[Connection], None] = _unchecked) -> ChampionMove:
        """Record a move in one transaction, then carry it to MLflow; without MLflow the compactor carries it later.

        Args:
            decide: Returns the next move, from the moves so far (oldest first) and the versions that were deleted in
                MLflow; or an earlier move, which is not made again. It may raise a refusal.
            reason: Why.
            check: Checks in the transaction whether this process may still act.

        Raises:
            GateRefused: The move is refused, or the model belongs to another workspace.
        """
        own = workspace_id(self._workspace.state)
        with self.carrier.looking(claims=True) as state:
            try:
                with database.writing(self._workspace.state) as connection:
                    registered_models.refuse_foreign(connection, self.model, own)
                    check(connection)
                    moves = champion_moves.read(connection, self.model)[::-1]
                    move = decide(moves, versions.removed(connection, self.model))
                    if not move.id:
                        move = self._record(connection, move, reason)
            finally:
                if state:  # after a refusal too: what was moved in MLflow, or what a killed process left
                    self.carrier.carry(state)
        self._announcer.deliver()
        with database.reading(self._workspace.state) as connection:
            registered_models.refuse_foreign(connection, self.model, own)  # another one claimed it at the same time
        return move

    def adopt(self, reason: str) -> ChampionMove:
        """Make the model of another workspace ours; it follows from its next look on.

        Raises:
            UsageError: MLflow has no such model.
            GateRefused: It is ours already.
            StoreError: MLflow is away.
        """
        move = self.carrier.adopt(self.actor, reason[:MOST_REASON])
        self._announcer.deliver()
        return move

    def _record(self, connection: Connection, move: ChampionMove, reason: str) -> ChampionMove:
        fields = {name: getattr(move, name) for name in ("action", "before", "after", "plan", "promotion", "best")}
        actor_fields = {"by": move.loop_id or self.actor, "reason": reason[:MOST_REASON], "loop_id": move.loop_id}
        recorded = champion_moves.record(connection, self.model, move.number - 1, **fields, **actor_fields)
        if registered_models.read(connection, self.model).challenger == move.after:
            self._set_challenger(connection, None)
        self.carrier.intend(connection, move.after)
        self._announcer.store(connection, recorded)
        return recorded

    def _set_challenger(self, connection: Connection, version: str | None) -> None:
        projection = registered_models.read(connection, self.model)
        registered_models.save(connection, self.model, replace(projection, challenger=version))

    def _ensure_model(self, description: str) -> None:
        from mlflow.exceptions import MlflowException

        tags = {"loopline.project": self.model, OWNER: workspace_id(self._workspace.state)}
        try:
            self._store.create_registered_model(self.model, tags=tags, description=description)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return
        with database.writing(self._workspace.state) as connection:
            row = replace(registered_models.read(connection, self.model), owner=tags[OWNER])
            registered_models.save(connection, self.model, replace(row, looked=database.now(connection)))


def _moved(model: str, champion: str | None, expected: str | None, is_loop: bool) -> str:
    is_now, was = f"{model}: {champion_words(champion)}", version_words(expected)
    if is_loop:
        return f"{is_now}, but the verdict compared with {was}: run again, it judges against what is there now"
    if expected is None:
        return f"{is_now}, and there was none before: somebody moved it meanwhile; look again, then promote"
    return f"{is_now}, not {was}: somebody moved it meanwhile; look again, then promote"


def _nobody(moves: Sequence[ChampionMove]) -> str:
    champions = champions_in_force(moves)
    if not champions:
        return "no champion so far"
    if len(champions) == 1:
        return f"nobody was champion before version {champions[0]}"
    return f"of the champions before version {champions[-1]} none is left: they were deleted in MLflow"
