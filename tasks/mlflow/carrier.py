"""Carries the moves of a project's champion to MLflow, and hears the moves that were made there.

The rows of the state database decide; MLflow's aliases and tags follow. A carrier works under a lease, but no lease
stops what a paused process sets in MLflow: so the values that are being set are written into the database first, where
they are told from a person's, and a carrier that lost its lease looks again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from models.errors import GateRefused, LeaseLostError, StoreError, UsageError
from models.serving.registry import ChampionMove, back_from
from models.serving.registry_comparison import (
    INTENT_S,
    JOURNAL,
    MARK,
    MOVED_BY,
    OWNER,
    Intent,
    Projection,
    RegistryComparison,
    RegistryState,
    adopted,
    compare,
    followed,
    is_written_here,
    joined,
    journal_text,
    mark_of,
)
from tasks.host import database
from tasks.host.carrying import WAIT_S, carrying
from tasks.host.leases import Lease, leased
from tasks.host.tables import loops
from tasks.host.workspace import Workspace
from tasks.mlflow.client import client, matches, reaching_store
from tasks.mlflow.embedded_store import open_client
from tasks.mlflow.stored_versions import read_all
from tasks.state import champion_moves, registered_models, versions
from tasks.state.workspace_id import workspace_id

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from sqlalchemy import Connection

_ROUNDS = 3
"""How often a carrier begins again, because it lost its lease or another row came meanwhile."""


class _Rows(NamedTuple):
    """What the database holds of a project: its moves, oldest first, how far MLflow follows, its versions, the time."""

    moves: list[ChampionMove]
    projection: Projection
    versions: set[str]
    now: float


@dataclass
class Carrier:
    """Keeps one registered model of MLflow as the rows say.

    Args:
        workspace: The workspace.
        model: The registered model, which has the project's name.
        on_move: Stores the event of a move, in the transaction of its row.
        is_closed: Returns whether promotions go through Loopline alone, so that a move in MLflow is put back.
        trouble: Why MLflow was not looked at, or does not follow; empty: it does.
    """

    workspace: Workspace
    model: str
    on_move: Callable[[Connection, ChampionMove], None]
    is_closed: Callable[[], bool]
    trouble: str = ""
    _lease: Lease | None = None

    @property
    def _name(self) -> str:
        return f"mlflow:{self.model}"

    @contextlib.contextmanager
    def looking(self, *, claims: bool = False) -> Iterator[RegistryState | None]:
        """Record what was moved in MLflow, and let no other process carry during the block; yield what MLflow shows.

        None if MLflow is away or another process carries: then that one carries the rows, or the compactor does.

        Args:
            claims: Make a model that no workspace has claimed ours, since we move it.
        """
        with contextlib.ExitStack() as stack:
            state = None
            try:
                stack.enter_context(self._alone())
                state = self._look(claims=claims)
            except StoreError as error:
                self._note(error)
            yield state

    def follow(self) -> None:
        """Record what was moved in MLflow, and carry what waits; a model of another workspace is followed alone."""
        with self.looking() as state:
            if state:
                self.carry(state)

    def carry(self, state: RegistryState) -> None:
        """Set in MLflow what the rows say, from what MLflow showed; `trouble` says why, if it cannot be set."""
        try:
            if not self._followed(state):  # its lease was taken while it wrote: what it set may be of before
                with leased(self.workspace.state, self._name, WAIT_S) as self._lease:
                    self._followed(self._look())
        except StoreError as error:
            self._note(error)

    def _followed(self, state: RegistryState) -> bool:
        """Carry until no row waits; return False if another process took the lease."""
        for _ in range(_ROUNDS):
            with database.reading(self.workspace.state) as connection:
                rows = self._rows(connection)
            if not self._compared(rows, state).carries:
                self._settle(rows, state)
                return True
            newest = self._carried(rows, state)
            if newest is None or (newest == rows.moves[-1].number and rows.projection.owner):
                return newest is not None  # a model that was just claimed is looked at again: another may claim it too
            state = self._look()
        return True

    def _settle(self, rows: _Rows, state: RegistryState) -> None:
        """Record what a carrier set that was killed after the mark: else its row waits for ever."""
        if rows.moves and rows.projection.number < rows.moves[-1].number and state.mark == mark_of(rows.moves[-1]):
            with database.writing(self.workspace.state) as connection:
                if not self._is_taken_over(connection):
                    now = registered_models.read(connection, self.model)
                    now = replace(now, number=rows.moves[-1].number, alias=state.champion, mark=state.mark)
                    registered_models.save(connection, self.model, now)

    def intend(self, connection: Connection, value: str | None) -> None:
        """Write down that the alias is being set to a value, in a transaction before it is set."""
        rows = self._rows(connection)
        alive = [intent for intent in rows.projection.intents if intent.until >= rows.now and intent.value != value]
        intents = (*alive, Intent(value, rows.now + INTENT_S))
        registered_models.save(connection, self.model, replace(rows.projection, intents=intents))

    def _carried(self, rows: _Rows, state: RegistryState) -> int | None:
        """Set aliases and tags as the rows say; return the newest row's number by now, None without the lease."""
        newest, own = rows.moves[-1], workspace_id(self.workspace.state)
        intended = {intent.value for intent in rows.projection.intents if intent.until > rows.now + INTENT_S / 2}
        if newest.after not in intended:
            with database.writing(self.workspace.state) as connection:
                self.intend(connection, newest.after)
        with reaching_store():
            is_whole = self._set(rows, state)
        lost = f"MLflow has no version {newest.after} of {self.model}: put it back from a copy"
        self.trouble = "" if is_whole else lost
        with database.writing(self.workspace.state) as connection:
            if self._is_taken_over(connection):
                return None
            now = self._rows(connection)
            carried = replace(
                now.projection,
                owner=own,
                number=newest.number,
                alias=newest.after if is_whole else state.champion,
                mark=mark_of(newest),
                intents=tuple(intent for intent in now.projection.intents if intent.value != newest.after),
                looked=now.now,
                trouble=self.trouble,
            )
            registered_models.save(connection, self.model, carried)
        return now.moves[-1].number

    def adopt(self, actor: str, reason: str) -> ChampionMove:
        """Make the model ours: the moves in MLflow's journal become rows, and one more says who took it and why.

        Where it is ours already, as after a restore of the database that then went on, both courses of moves are
        joined, and the champion of our rows stays.

        Raises:
            UsageError: MLflow has no such model.
            GateRefused: It is ours, with all its moves; or another workspace adopts it at the same time.
            StoreError: MLflow or the database is away.
        """
        own = workspace_id(self.workspace.state)
        with self._alone():
            state = self._read()
            if not state.exists:
                raise UsageError(f"{self.model}: MLflow has no such model: `loopline run {self.model}` registers one")
            with database.reading(self.workspace.state) as connection:
                rows = self._rows(connection)
            is_own = rows.projection.owner == state.tags.get(OWNER) == own
            if is_own and not joined(rows.moves, state):
                raise GateRefused(f"{self.model}: belongs to this workspace already: `loopline promote` moves it")
            state = self._claim()
            if state.tags[OWNER] != own:
                raise GateRefused(f"{self.model}: workspace {state.tags[OWNER]} adopted it meanwhile: run again")
            stored = read_all(client(), self.model, self.workspace.state)
            with database.writing(self.workspace.state) as connection:
                rows = self._rows(connection)
                lacking = joined(rows.moves, state)
                for move in lacking:
                    champion_moves.insert(connection, self.model, move)
                last = rows.moves[-1] if is_own and rows.moves else None
                move = self._store(connection, adopted([*rows.moves, *lacking], state, last, by=actor, reason=reason))
                versions.save(connection, self.model, *(one for one in stored if one.number not in rows.versions))
                taken = Projection(own, state.aliases.get("challenger"), 0, state.champion, state.mark, (), rows.now)
                registered_models.save(connection, self.model, taken)
            self.carry(state)
        return move

    def _claim(self) -> RegistryState:
        """Write our id into the model, and read back who has it."""
        with reaching_store():
            client().set_registered_model_tag(self.model, OWNER, workspace_id(self.workspace.state))
        return self._read()

    def _claimed(self) -> RegistryState:
        """Claim the model, unless it bears moves of another workspace, as of one that claims it at this moment."""
        state = self._claim()
        writers = [owner for owner, _ in state.journal() if owner]
        if not writers or writers[-1] == state.tags.get(OWNER):
            return state
        with reaching_store():
            client().set_registered_model_tag(self.model, OWNER, writers[-1])
        return self._read()

    def _is_written_here(self, state: RegistryState) -> bool:
        with database.reading(self.workspace.state) as connection:
            projection = registered_models.read(connection, self.model)
            own = set(connection.scalars(select(loops.c.loop_id).where(loops.c.project == self.model)))
        return is_written_here(state, projection, workspace_id(self.workspace.state), own)

    def _look(self, *, claims: bool = False) -> RegistryState:
        """Read what MLflow shows, and record what was moved there."""
        state = self._read()
        if state.exists and not state.tags.get(OWNER) and (claims or self._is_written_here(state)):
            state = self._claimed()
        with database.reading(self.workspace.state) as connection:
            rows = self._rows(connection)
        comparison = self._compared(rows, state)
        if comparison.conflict:
            raise StoreError(f"{self.model}: {comparison.conflict}")
        if rows.moves and not state.exists:
            raise StoreError(
                f"{self.model}: MLflow has no registered model of this name: rename it back, or put MLflow back from a "
                "copy; the champion stays"
            )
        self.trouble = ""
        if rows.projection.trouble:
            self._save(trouble="")
        registered_models.note_look(self.workspace.state, [self.model])
        is_first = rows.projection.looked is None or comparison.owner not in ("", rows.projection.owner)
        if comparison.read_back or comparison.move or comparison.removed or is_first:
            is_new = is_first or bool(comparison.read_back) or not self._is_own(state)
            stored = read_all(client(), self.model, self.workspace.state) if is_new else []
            with database.writing(self.workspace.state) as connection:
                if not self._is_taken_over(connection):
                    recorded = {version.number for version in versions.read(connection, self.model)}
                    versions.save(connection, self.model, *(one for one in stored if one.number not in recorded))
                    self._record(connection, state)
        return state

    def _record(self, connection: Connection, state: RegistryState) -> None:
        """Insert the rows that the comparison gives in the transaction that inserts them."""
        rows = self._rows(connection)
        comparison = self._compared(rows, state)
        for row in comparison.read_back:
            champion_moves.insert(connection, self.model, row)
        versions.remove(connection, self.model, *comparison.removed)
        if comparison.move:
            self._store(connection, comparison.move)
        challenger = rows.projection.challenger or state.aliases.get("challenger")
        looked = replace(self._rows(connection).projection, looked=rows.now, challenger=challenger)
        if not self._is_own(state):  # nothing waits: this workspace carries none of its rows
            newest = champion_moves.read(connection, self.model, limit=1)
            number, alias = newest[0].number if newest else 0, state.champion
            followed = Projection(comparison.owner, state.aliases.get("challenger"), number, alias, looked=rows.now)
            looked = replace(followed, mark=state.mark)
        registered_models.save(connection, self.model, looked)

    def _store(self, connection: Connection, move: ChampionMove) -> ChampionMove:
        """Insert a row after the newest, with its event."""
        fields = {name: getattr(move, name) for name in set(ChampionMove.model_fields) - {"number", "id", "at"}}
        recorded = champion_moves.record(connection, self.model, move.number - 1, **fields)
        self.on_move(connection, recorded)
        return recorded

    def _is_own(self, state: RegistryState) -> bool:
        """Return whether the model is ours; one that MLflow does not show belongs to nobody else."""
        return not state.exists or state.tags.get(OWNER) == workspace_id(self.workspace.state)

    def _rows(self, connection: Connection) -> _Rows:
        moves = champion_moves.read(connection, self.model)[::-1]
        projection = registered_models.read(connection, self.model)
        stored = {version.number for version in versions.read(connection, self.model)}
        named = {move.after for move in moves if move.after}
        numbers = (stored | named) - versions.removed(connection, self.model)
        return _Rows(moves, projection, numbers, database.now(connection))

    def _compared(self, rows: _Rows, state: RegistryState) -> RegistryComparison:
        own_id = workspace_id(self.workspace.state)
        if state.exists and not state.tags.get(OWNER):  # whose it is will be known when a workspace promotes
            return RegistryComparison(move=followed(rows.moves, rows.projection, state, own_id))
        arguments = rows.moves, rows.projection, rows.versions, state, own_id, rows.now
        comparison = compare(*arguments)
        is_heard = comparison.move is not None and comparison.move.action != "overruled"
        return compare(*arguments, is_closed=True) if is_heard and self.is_closed() else comparison

    def _read(self) -> RegistryState:
        from mlflow.exceptions import MlflowException

        with reaching_store():
            store = open_client(self.workspace)
            try:
                model = store.get_registered_model(self.model)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return RegistryState(exists=False)
            versions_there = matches(store.search_model_versions, f"name = '{self.model}'")
            tags_by_version = {str(version.version): dict(version.tags) for version in versions_there}
        aliases = {name: str(version) for name, version in model.aliases.items()}
        return RegistryState(aliases, dict(model.tags), tags_by_version)

    def _set(self, rows: _Rows, state: RegistryState) -> bool:
        """Set owner, journal, the champion's tags, the aliases, then the mark; return False if the champion is gone."""
        store, newest, own_id = client(), rows.moves[-1], workspace_id(self.workspace.state)
        journaled = {(move.number, move.id) for owner, move in state.journal() if owner == own_id}
        tags = {} if state.tags.get(OWNER) == own_id else {OWNER: own_id}
        for move in rows.moves:
            if (move.number, move.id) not in journaled:
                tags[f"{JOURNAL}{move.number:06d}"] = journal_text(move, own_id)
        for name, value in tags.items():
            store.set_registered_model_tag(self.model, name, value)
        is_whole = newest.after is None or newest.after in state.versions
        before = state.versions.get(newest.after or "")
        if newest.after and before is not None:
            for name, value in newest.serving({}).items():
                if before.get(name, "") != value:
                    store.set_model_version_tag(self.model, newest.after, name, value)
        self._set_aliases(store, rows, state)
        if is_whole and state.mark != mark_of(newest):
            store.set_registered_model_tag(self.model, MARK, mark_of(newest))
        if MOVED_BY in state.tags:
            store.delete_registered_model_tag(self.model, MOVED_BY)
        return is_whole

    def _set_aliases(self, store: MlflowClient, rows: _Rows, state: RegistryState) -> None:
        champion = rows.moves[-1].after
        gone = {move.after for move in rows.moves if move.after} - {*state.versions}
        challenger = rows.projection.challenger
        aliases = {
            "champion": state.champion if champion in gone else champion,
            "previous": back_from(rows.moves, gone),
            "challenger": None if challenger == champion or challenger not in state.versions else challenger,
        }
        for name, version in aliases.items():
            if version == state.aliases.get(name):
                continue
            if version is None:
                store.delete_registered_model_alias(self.model, name)
            else:
                store.set_registered_model_alias(self.model, name, version)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with carrying(self.workspace, "mlflow", self.model) as self._lease:
            yield

    def _is_taken_over(self, connection: Connection) -> bool:
        try:
            if self._lease:
                self._lease.check(connection)
        except LeaseLostError:
            return True
        return False

    def _note(self, error: StoreError) -> None:
        """Keep why MLflow does not follow, for `status` and `doctor`."""
        self.trouble = str(error)
        with contextlib.suppress(StoreError):
            self._save(trouble=self.trouble)

    def _save(self, **fields: Any) -> None:
        with database.writing(self.workspace.state) as connection:
            projection = registered_models.read(connection, self.model)
            registered_models.save(connection, self.model, replace(projection, **fields))
