"""The MLflow model registry: versions registered once per key, aliases moved by compare-and-swap, and the journal.

MLflow sets an alias whatever its old target is, so of two concurrent promotions the last one wins without notice. Here
a promotion takes a lock, checks that the champion is still the one it was compared with, writes the journal and moves
the aliases. The journal is stored in the registry itself (tags of the registered model, `loopline.journal.000001`), so
that all machines that share the registry share it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from models.errors import GateRefused, StoreError, UsageError
from models.serving.registry import BEST, KEY, UNRECORDED, ChampionMove, JournalEntry, champions_in_force
from models.serving.releases import PLAN, PROMOTION
from tasks.host import database, processes, stores
from tasks.host.leases import Lease, leased
from tasks.host.locks import held
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store, registry_reader
from tasks.mlflow.client import client, reaching_store
from tasks.mlflow.stored_versions import stored_version
from tasks.state import registered_models, versions
from tasks.state.versions import StoredVersion

if TYPE_CHECKING:
    from mlflow import MlflowClient

Entry = TypeVar("Entry", bound=JournalEntry)
HOLDER = "loopline.holder"
LOCK_TIMEOUT_S = 60.0
STALE_LOCK_S = 120.0
"""Time for which a waiter sees the same holder of the lock between machines before it breaks the lock."""
POLL_S = 0.5


class Registry:
    """The registered model of one project."""

    def __init__(self, workspace: Workspace, model: str, on_move: Callable[[ChampionMove], None]) -> None:
        self._workspace = workspace
        self._on_move = on_move
        self.model = model
        embedded_store.initialise(workspace)

    @functools.cached_property
    def _store(self) -> MlflowClient:
        """Made at its first use: in a workspace that cannot be written the lock says so, at once."""
        return client()

    def find(self, key: str) -> str | None:
        """Return the version that was registered for this key; None if there is none.

        One that no row names was registered by a process that was killed before it wrote the row.
        """
        with reaching_store():
            found = self._store.search_model_versions(f"name = '{self.model}' and tags.`{KEY}` = '{key}'")
        ordered = sorted((UNRECORDED in version.tags, int(version.version)) for version in found)
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
        with self.locked(), reaching_store():
            version = self.find(key)
            if version is None:
                self._ensure_model(description)
                whose = {**tags, KEY: key, UNRECORDED: "{host}:{pid}".format(**processes.identity())}
                created = self._store.create_model_version(
                    self.model, source, run_id=run_id, tags=whose, model_id=model_id
                )
                version = str(created.version)
            return self.judge(version, tags, lease)

    def judge(self, version: str, tags: Mapping[str, str], lease: Lease | None = None) -> StoredVersion:
        """Set tags of a version, and make it the challenger unless it is the champion: in MLflow, then by rows."""
        with reaching_store():
            found = self._store.get_model_version(self.model, version)
            for name, value in tags.items():
                if found.tags.get(name) != value:
                    self._store.set_model_version_tag(self.model, version, name, value)
            stored = stored_version(self._store, found, self._workspace.state)
        stored = replace(stored, tags={**stored.tags, **tags})
        is_champion = self.alias("champion") == version
        with database.writing(self._workspace.state) as connection:
            if lease:
                lease.check(connection)
            versions.save(connection, self.model, stored)
            if not is_champion:
                model = registered_models.read(connection, self.model)
                registered_models.save(connection, self.model, replace(model, challenger=version))
        with reaching_store():
            if not is_champion:
                self._store.set_registered_model_alias(self.model, "challenger", version)
            if UNRECORDED in found.tags:
                self._store.delete_model_version_tag(self.model, version, UNRECORDED)
        return stored

    def tags(self, version: str) -> dict[str, str]:
        """Return the tags of a version.

        Raises:
            UsageError: There is no such version.
            StoreError: The registry is unavailable.
        """
        registered = registry_reader.numbered(self.model, version)
        if registered is None:
            numbers = ", ".join(sorted(self._versions(), key=int)[-8:]) or "none yet"
            raise UsageError(f"{self.model} has no version {version!r}: there is {numbers}")
        return registered.tags

    def set_tags(self, version: str, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        with reaching_store():
            for name, value in tags.items():
                self._store.set_model_version_tag(self.model, version, name, value)

    def alias(self, name: str) -> str | None:
        """Return the version that an alias points at; None if there is no such alias."""
        version = registry_reader.aliased(self.model, name)
        return version.number if version else None

    def set_alias(self, name: str, version: str | None) -> None:
        """Point an alias at a version, or delete the alias (None)."""
        with reaching_store():
            if version is not None:
                self._store.set_registered_model_alias(self.model, name, version)
            elif self.alias(name) is not None:
                self._store.delete_registered_model_alias(self.model, name)

    def journal(self) -> list[ChampionMove]:
        """Return every move of the champion, oldest first; empty if nothing is registered."""
        return registry_reader.registered(self.model).moves()[::-1]

    def write(self, prefix: str, kind: type[Entry], reason: str, **fields: Any) -> Entry:
        """Append an entry to one of the journals in the tags of the registered model."""
        newest = registry_reader.registered(self.model).journal(prefix, limit=1)
        journal_line = kind(
            number=kind.model_validate_json(newest[0]).number + 1 if newest else 1,
            at=time.time(),
            by="{host}:{pid}".format(**processes.identity()),
            reason=reason[:1000],
            **fields,
        )
        with reaching_store():
            self._store.set_registered_model_tag(
                self.model, f"{prefix}{journal_line.number:06d}", journal_line.model_dump_json()
            )
        return journal_line

    def promote(self, version: str, expected: str | None, *, loop_id: str = "", reason: str = "") -> ChampionMove:
        """Make `version` the champion if the champion is still `expected`.

        A loop that was killed after the move and calls again gets the entry of its own move. A person is refused if
        `expected` is no longer the champion, even if `version` is the champion by now: somebody else made that move,
        for another reason.

        Raises:
            GateRefused: Somebody else moved the champion since; names the current champion.
        """
        with self.locked():
            champion = self._champion()
            journal = self.journal()
            move_before = next((move for move in reversed(journal) if move.after == version), None)
            if champion == version and move_before and (loop_id or expected == version):
                return move_before
            mine = [move for move in journal if loop_id and (move.loop_id, move.after) == (loop_id, version)]
            if mine:
                return mine[-1]  # the loop was killed after its move: a person's later move stays valid
            if champion != expected:
                raise GateRefused(_moved(self.model, champion, expected, bool(loop_id)))
            move = self._move("promote", champion, version, loop_id, reason)
        return self._announced(move)

    def rollback(self, reason: str = "", expected: str | None = None) -> ChampionMove:
        """Make the previous champion the champion again; repeated calls go further back.

        Args:
            reason: Stored in the journal.
            expected: The champion that the caller saw; None: roll back any champion.

        Raises:
            GateRefused: There is no previous champion, or somebody else moved the champion since.
        """
        with self.locked():
            self._champion()
            champions = champions_in_force(self.journal())
            back = _back(champions, self._versions())
            if back is None:
                raise GateRefused(
                    f"{self.model}: nothing to roll back to, {_nobody(champions)}: `loopline promote` takes any version"
                )
            if expected is not None and champions[-1] != expected:
                raise GateRefused(
                    f"{self.model}: the champion is version {champions[-1]}, not {expected}: look again, then roll back"
                )
            move = self._move("rollback", champions[-1], back, "", reason)
        return self._announced(move)

    def _announced(self, move: ChampionMove) -> ChampionMove:
        self._on_move(move)
        return move

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the registry for this model against this machine's processes, and others' if the registry is shared."""
        path = self._workspace.locks / f"registry-{self.model}.lock"
        busy = f"{self.model}: another process holds the registry for {LOCK_TIMEOUT_S:g} s"
        embedded = stores.is_embedded(os.environ["MLFLOW_TRACKING_URI"])
        name = f"{self.model}.loopline-lock"
        between_machines: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if database.is_shared():
            between_machines = leased(self._workspace.state, f"registry:{self.model}", LOCK_TIMEOUT_S)
        elif not embedded:
            between_machines = _shared_lock(self._store, name)
        with held(path, lambda: busy, LOCK_TIMEOUT_S), reaching_store(), between_machines:
            yield

    def _move(
        self,
        action: Literal["promote", "rollback"],
        before: str | None,
        after: str,
        loop_id: str,
        reason: str,
    ) -> ChampionMove:
        """Write the journal first, then move the aliases: the next call finishes an interrupted move (`_champion`)."""
        is_planned = self.tags(after).get(PLAN)  # a release plan from its last time as champion: it is over
        tags = {PROMOTION: uuid.uuid4().hex[:12], **({PLAN: ""} if is_planned else {})}
        if action == "promote" and not loop_id:  # a person decides: challengers are compared with this one from now on
            tags[BEST] = ""
        self.set_tags(after, tags)
        move = self._entry(action, before, after, loop_id, reason)
        self._settle()
        return move

    def _entry(
        self, action: Literal["promote", "rollback"], before: str | None, after: str, loop_id: str, reason: str
    ) -> ChampionMove:
        fields = {"action": action, "before": before, "after": after, "loop_id": loop_id}
        return self.write(registry_reader.JOURNAL, ChampionMove, reason, **fields)

    def _champion(self) -> str | None:
        """Return the champion; first finish an interrupted move, and journal a move that a person made in MLflow."""
        journal, alias = self.journal(), self.alias("champion")
        champions = champions_in_force(journal)
        if champions and alias is not None and alias != champions[-1] and not self._is_cut_short(journal, alias):
            self._announced(self._entry("promote", champions[-1], alias, "", "the alias was moved in MLflow"))
        self._settle()
        return self.alias("champion")

    def _is_cut_short(self, journal: list[ChampionMove], alias: str) -> bool:
        """Return whether the aliases still are as they were before the last entry of the journal."""
        before = _back(champions_in_force(journal[:-1]), self._versions())
        return journal[-1].before == alias and self.alias("previous") == before

    def _settle(self) -> None:
        """Set the aliases as the journal says, except for versions that were deleted in MLflow since."""
        champions = champions_in_force(self.journal())
        if not champions:
            return
        numbers = self._versions()
        if champions[-1] in numbers:
            self.set_alias("champion", champions[-1])
        self.set_alias("previous", _back(champions, numbers))
        if self.alias("challenger") == champions[-1]:
            self.set_alias("challenger", None)

    def _versions(self) -> set[str]:
        with reaching_store():
            return {str(version.version) for version in self._store.search_model_versions(f"name = '{self.model}'")}

    def _ensure_model(self, description: str) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self._store.create_registered_model(
                self.model, tags={"loopline.project": self.model}, description=description
            )
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise


def _back(champions: list[str], versions: set[str]) -> str | None:
    """Return the last champion before the current one that still exists."""
    return next(
        (version for version in reversed(champions[:-1]) if version in versions and version != champions[-1]), None
    )


def _moved(model: str, champion: str | None, expected: str | None, is_loop: bool) -> str:
    is_now = f"{model}: the champion is version {champion or 'none'}"
    was = f"version {expected}" if expected else "none"
    if is_loop:
        return f"{is_now}, but the verdict compared with {was}: run again, it judges against that one"
    return f"{is_now}, not {was}: somebody moved it meanwhile; look again, then promote"


def _nobody(champions: list[str]) -> str:
    if not champions:
        return "no champion so far"
    if len(champions) == 1:
        return f"nobody was champion before version {champions[0]}"
    return f"of the champions before version {champions[-1]} none is left: they were deleted in MLflow"


@contextlib.contextmanager
def _shared_lock(store: MlflowClient, name: str) -> Iterator[None]:
    """Hold a lock across machines: a registered model of a given name can be created only once until it is deleted.

    The lock names its holder. It is broken by renaming it (see `_retire`) if its holder died on this machine, or if a
    waiter has seen the same holder for STALE_LOCK_S by its own clock: another machine's clock may be wrong.
    """
    from mlflow.exceptions import MlflowException

    deadline = time.monotonic() + LOCK_TIMEOUT_S + STALE_LOCK_S
    holder = json.dumps({**processes.identity(), "nonce": uuid.uuid4().hex})
    seen: dict[str, float] = {}
    while True:
        try:
            store.create_registered_model(name, tags={HOLDER: holder}, description="A lock; gone in a moment.")
            break
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            _break_if_stale(store, name, seen)
            if time.monotonic() > deadline:
                raise StoreError(f"{name}: held by other machines all the time: run again") from error
            time.sleep(POLL_S)
    try:
        yield
    finally:
        _end_lock(store, name, holder)


def _end_lock(store: MlflowClient, name: str, holder: str) -> None:
    """Release our own lock; if it was broken meanwhile and another process holds it now, leave it."""
    from mlflow.exceptions import MlflowException

    with contextlib.suppress(MlflowException):  # the work is done; a lock left behind is broken as stale
        if _retire(store, name, holder):
            store.delete_registered_model(_retired_name(name, holder))


def _break_if_stale(store: MlflowClient, name: str, seen: dict[str, float]) -> None:
    """Break a lock whose holder is gone; `seen` has the time at which this waiter saw each holder first."""
    from mlflow.exceptions import MlflowException

    with contextlib.suppress(MlflowException):  # deleted meanwhile
        text = store.get_registered_model(name).tags.get(HOLDER, "{}")
        holder: dict[str, Any] = json.loads(text)
        waited_s = time.monotonic() - seen.setdefault(text, time.monotonic())
        is_gone = not processes.is_alive(holder) if processes.is_here(holder) else waited_s > STALE_LOCK_S
        if is_gone:
            _retire(store, name, text)


def _retire(store: MlflowClient, name: str, holder: str) -> bool:
    """Rename the lock of this holder; return False if another holder has the lock now.

    Renaming is the only change in MLflow that succeeds only once per holder: a second attempt fails because the new
    name is taken. So a process that saw a stale lock too late cannot remove the lock that another process created
    since. This is why the name of a broken lock stays taken.
    """
    from mlflow.exceptions import MlflowException

    try:
        store.rename_registered_model(name, _retired_name(name, holder))
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            raise
        return False
    return True


def _retired_name(name: str, holder: str) -> str:
    return f"{name}.broken-{hashlib.sha256(holder.encode()).hexdigest()[:16]}"
