"""Compares what MLflow shows of a registered model with the rows of its moves: what was moved there, what to carry.

MLflow keeps no actor, no time and no counter of an alias. A person's move is known by this alone: MLflow holds the mark
that we wrote last, and the alias is neither the value that was carried nor one that a carrier is just setting.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from models.frozen_model import FrozenModel
from models.serving.registry import FILES, KEY, MLFLOW, Action, ChampionMove, champion_words
from models.serving.releases import PROMOTION, ReleasePlan, new_act

JOURNAL = "loopline.journal."
"""Prefix of the registered model's tags that hold the moves, for people who read them in MLflow."""
MARK = "loopline.move"
"""The registered model's tag with `number:id` of the move that was carried last."""
OWNER = "loopline.workspace"
"""The registered model's tag with the id of the workspace that may move its champion."""
MOVED_BY = "loopline.moved_by"
"""The registered model's tag in which a tool names itself before it moves the alias: a `NamedMove` as JSON."""
INTENT_S = 600.0
"""How long a value that a carrier is setting is taken for the carrier's, in seconds."""
_ACTION = "exact_action"
"""The field of a move in the journal with an action that an older Loopline does not know."""
_NAMESPACE = uuid.UUID("6c6f6f70-6c69-6e65-8000-6d6f76656e74")


class NamedMove(FrozenModel):
    """A move that a tool made in MLflow, as the tag MOVED_BY names it; it counts only for the version it names."""

    version: str
    actor: str
    reason: str = ""
    action: Action = "promote"


@dataclass(frozen=True)
class Intent:
    """A value to which a carrier is setting the alias.

    Args:
        value: The version; None: the alias is deleted.
        until: Until when it is taken for the carrier's; Unix time, by the database's clock.
    """

    value: str | None
    until: float


@dataclass(frozen=True)
class Projection:
    """How far MLflow follows the rows of a project.

    Args:
        owner: Id of the workspace that may move it; empty: not asked yet.
        challenger: The version that was judged last and is not the champion.
        number: The last move that MLflow has; 0: none.
        alias: The version to which we set the alias `champion` last.
        mark: The tag MARK, as we wrote it last; empty: never.
        intents: What carriers are setting.
        looked: When MLflow was last looked at; Unix time, seconds; None: it must be.
        trouble: Why moves are not carried; empty: they are.
    """

    owner: str = ""
    challenger: str | None = None
    number: int = 0
    alias: str | None = None
    mark: str = ""
    intents: tuple[Intent, ...] = ()
    looked: float | None = None
    trouble: str = ""


@dataclass(frozen=True)
class RegistryState:
    """What MLflow shows of a registered model.

    Args:
        aliases: The version that each alias points at.
        tags: The model's tags.
        versions: The tags of each version.
        exists: Whether there is such a model.
    """

    aliases: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    exists: bool = True

    @property
    def champion(self) -> str | None:
        """The version that the alias `champion` points at."""
        return self.aliases.get("champion")

    @property
    def mark(self) -> str:
        """The tag MARK; empty if there is none."""
        return self.tags.get(MARK, "")

    def journal(self) -> list[tuple[str, ChampionMove]]:
        """Return the moves in the tags, oldest first, each with the workspace's id; empty for an older Loopline's."""
        documents = [json.loads(text) for name, text in sorted(self.tags.items()) if name.startswith(JOURNAL)]
        return [(document.get("workspace", ""), _journal_move(document)) for document in documents]


@dataclass(frozen=True)
class RegistryComparison:
    """What is to be done.

    Args:
        owner: Id of another workspace to which the model belongs: nothing is carried, and `move` follows its alias.
        conflict: Why nothing may be carried; empty: it may.
        read_back: Moves of MLflow's journal that the database lacks, with their numbers.
        move: The move that was heard, or that says what was overruled; its number and id are not given yet.
        removed: The versions that were deleted in MLflow.
        carries: Whether something is to be set in MLflow.
    """

    owner: str = ""
    conflict: str = ""
    read_back: tuple[ChampionMove, ...] = ()
    move: ChampionMove | None = None
    removed: tuple[str, ...] = ()
    carries: bool = False


def mark_of(move: ChampionMove) -> str:
    """Return the mark of a move that was carried."""
    return f"{move.number}:{move.id}"


def compare(
    moves: Sequence[ChampionMove],
    projection: Projection,
    versions: Collection[str],
    state: RegistryState,
    workspace: str,
    now: float,
    *,
    is_closed: bool = False,
) -> RegistryComparison:
    """Return what is to be done, from the rows and from what MLflow shows.

    Args:
        moves: The project's rows, oldest first.
        projection: How far MLflow follows.
        versions: The versions that are not recorded as removed.
        state: What MLflow shows.
        workspace: Our workspace's id.
        now: Unix time, by the database's clock.
        is_closed: Promotions go through Loopline alone: a move in MLflow is put back.
    """
    journal = state.journal()
    owner = _owner(moves, state, journal, workspace)
    if owner:
        return RegistryComparison(owner=owner, move=followed(moves, projection, state, workspace))
    ours = [move for owner, move in journal if owner == workspace or (not moves and not owner)]
    if conflict := _conflict(moves, ours):
        return RegistryComparison(conflict=conflict)
    ids = {move.id for move in moves}
    read_back = tuple(_with_plan(move, state) for move in ours if move.id not in ids)
    rows = [*moves, *read_back]
    is_older = not moves and not (state.mark and journal and journal[-1][0])
    carried = _carried(rows, projection, state, is_older=is_older)
    move = _move(rows, carried, state, now, is_closed=is_closed)
    newest = move or (rows[-1] if rows else None)
    is_behind = newest is not None and (carried.number < newest.number or state.champion != newest.after)
    is_ours = state.exists and state.mark == carried.mark
    carries = state.exists and newest is not None and (is_behind or not is_ours or not state.mark)
    named = {*versions, *(row.after for row in read_back if row.after)}
    removed = tuple(sorted(named - {*state.versions})) if is_ours else ()
    return RegistryComparison(read_back=read_back, move=move, removed=removed, carries=carries)


def is_written_here(state: RegistryState, projection: Projection, workspace: str, loops: Collection[str]) -> bool:
    """Return whether a model without the tag OWNER is ours, as an older Loopline or a restored MLflow leaves it.

    Args:
        state: What MLflow shows.
        projection: How far MLflow follows.
        workspace: Our workspace's id.
        loops: The ids of our loops: an older Loopline's journal names no workspace, but the loop that promoted.
    """
    journal = state.journal()
    writers = [owner for owner, _ in journal if owner]
    if writers:
        return writers[-1] == workspace
    promoters = {move.loop_id for _, move in journal if move.loop_id}
    is_of_loops = bool(promoters & {*loops}) if promoters else bool(journal)  # persons' moves alone name no workspace
    return workspace == projection.owner or is_of_loops


def followed(
    moves: Sequence[ChampionMove], projection: Projection, state: RegistryState, workspace: str
) -> ChampionMove | None:
    """Return the move by which a workspace follows the alias of a model that is not its own; None if it does already.

    Args:
        moves: The project's rows, oldest first.
        projection: How far MLflow follows.
        state: What MLflow shows.
        workspace: Our workspace's id.
    """
    newest, owner = moves[-1] if moves else None, state.tags.get(OWNER, "")
    serving = _served(state)
    if projection.owner == workspace and owner:
        reason = f"workspace {owner} adopted the model: this one follows it from now on"
        return next_move(moves, action="adopt", by=MLFLOW, reason=reason, **serving)
    if serving["after"] is None and newest is None:
        return None
    if newest and all(getattr(newest, name) == value for name, value in serving.items()):
        return None
    whose = f"workspace {owner}" if owner else "another workspace"
    action = "removed" if serving["after"] is None else "promote"
    return next_move(moves, action=action, by=MLFLOW, reason=f"the alias of {whose} was followed", **serving)


def joined(moves: Sequence[ChampionMove], state: RegistryState) -> list[ChampionMove]:
    """Return the moves of MLflow's journal that the rows lack, whoever wrote them, numbered after the rows.

    Args:
        moves: The project's rows, oldest first.
        state: What MLflow shows.
    """
    ids = {move.id for move in moves}
    lacking = [_with_plan(move, state) for _, move in state.journal() if move.id not in ids]
    first = moves[-1].number + 1 if moves else 1
    return [move.model_copy(update={"number": number}) for number, move in enumerate(lacking, first)]


def adopted(
    rows: Sequence[ChampionMove], state: RegistryState, champion: ChampionMove | None, **fields: Any
) -> ChampionMove:
    """Return the move that hands a model to this workspace, or says which of two courses of moves goes on.

    Args:
        rows: The project's rows and those joined to them, oldest first.
        state: What MLflow shows.
        champion: The row whose champion stays; None: the champion of MLflow.
        fields: Actor and reason.
    """
    serving = {name: getattr(champion, name) for name in _SERVING} if champion else _served(state)
    return next_move(rows, action="adopt", **serving, **fields)


_SERVING = ("after", "plan", "promotion")


def _served(state: RegistryState) -> dict[str, Any]:
    """Return what serves by MLflow: the champion, unless Loopline did not register it, its plan and promotion."""
    alias = state.champion if _is_registered(state, state.champion) else None
    tags = state.versions.get(alias or "", {})
    return {"after": alias, "plan": ReleasePlan.of_tags(tags), "promotion": tags.get(PROMOTION, "")}


def _owner(
    moves: Sequence[ChampionMove], state: RegistryState, journal: list[tuple[str, ChampionMove]], workspace: str
) -> str:
    """Return the other workspace to which the model belongs, by its tag or, without one, by its journal; or empty."""
    owners = [state.tags[OWNER]] if state.tags.get(OWNER) else [] if moves else [owner for owner, _ in journal if owner]
    return next((owner for owner in reversed(owners) if owner != workspace), "")


def _conflict(moves: Sequence[ChampionMove], journal: Sequence[ChampionMove]) -> str:
    """Return why the journal is of another course of the same workspace; empty if it is not."""
    ids = {move.number: move.id for move in moves}
    joined_ids = {*ids.values()}  # also a move that was joined under another number
    for move in journal:
        if move.id not in joined_ids and move.number in ids:
            return (
                f"MLflow holds another move {move.number} of this workspace: a copy of the workspace runs, or its "
                "database was restored: end the copy, or join both courses by `loopline adopt`"
            )
    return ""


def _carried(
    rows: Sequence[ChampionMove], projection: Projection, state: RegistryState, *, is_older: bool
) -> Projection:
    """Return how far MLflow follows, by its mark if that names a newer row than the database knew as carried.

    An older Loopline moves the aliases itself after its journal, and leaves the mark of a newer one as it is.
    """
    if not rows:
        return projection
    if is_older:
        last = rows[-1]
        is_cut_short = state.champion == last.before and (state.aliases.get("previous") or "") != last.before
        alias = state.champion if is_cut_short else last.after
        return replace(projection, number=last.number, alias=alias, mark=state.mark)
    marked = next((row for row in rows if mark_of(row) == state.mark and row.number > projection.number), None)
    if marked is None:
        return projection
    return replace(projection, number=marked.number, alias=marked.after, mark=state.mark)


def _move(
    rows: Sequence[ChampionMove], carried: Projection, state: RegistryState, now: float, *, is_closed: bool
) -> ChampionMove | None:
    """Return the move that was made in MLflow, or the one that overrules it; None if nobody moved anything there."""
    newest = rows[-1] if rows else None
    alias = state.champion
    if not state.exists:
        return None
    if state.mark != carried.mark:  # a copy of before, or a carrier that was paused: the row stands
        if newest is None or not carried.mark:
            return None
        previous = f"move {state.mark.partition(':')[0]}" if state.mark else "no move"
        return _overruled(rows, f"MLflow was restored, or a paused process wrote to it: it held {previous}")
    expected = {carried.alias, newest.after if newest else None, *_alive(carried.intents, now)}
    is_removed = alias is None and carried.alias is not None and carried.alias not in state.versions
    if alias in expected and not (is_removed and newest and newest.after == carried.alias):
        return _returned(rows, carried, state)
    if newest is None:
        return _heard(rows, state) if _is_registered(state, alias) else None
    if is_removed:
        return _heard(rows, state) if newest.after == carried.alias else None
    if alias is not None and not _is_registered(state, alias):
        return _overruled(rows, f"version {alias} was set in MLflow, which Loopline did not register")
    if is_closed:
        return _overruled(rows, f"{_set_words(alias)} in MLflow, which `judge.promotion` excludes")
    if newest.number > carried.number:
        return _overruled(rows, f"{_set_words(alias)} in MLflow, while a move waited to be carried there")
    return _heard(rows, state)


def _heard(rows: Sequence[ChampionMove], state: RegistryState) -> ChampionMove:
    """Return the move that a person or a tool made in MLflow."""
    alias = state.champion
    named = _named(state)
    action, actor, reason = (named.action, named.actor, named.reason) if named else ("promote", MLFLOW, "")
    if alias is None:
        action = "removed"
        reason = "the champion's version or alias was deleted in MLflow"
    fields = {"action": action, "after": alias, "by": actor, "reason": reason or "the alias was moved in MLflow"}
    return next_move(rows, promotion=new_act(), **fields)


def _returned(rows: Sequence[ChampionMove], carried: Projection, state: RegistryState) -> ChampionMove | None:
    """Return the end of the plan that a server named in MLflow, which has no alias for a plan; None if none did."""
    named, newest = _named(state), rows[-1] if rows else None
    if named is None or named.action != "return" or newest is None or not newest.plan.versions:
        return None
    if newest.number > carried.number or newest.after != named.version:
        return None  # the server did not know the newest move
    return staying(rows, ReleasePlan(), action="return", by=named.actor, reason=named.reason)


def _set_words(alias: str | None) -> str:
    return f"version {alias} was set" if alias else "the alias was deleted"


def _overruled(rows: Sequence[ChampionMove], reason: str) -> ChampionMove | None:
    """Return the move that says what was put back in MLflow; None if the newest row says so already."""
    newest = rows[-1]
    back = f"version {newest.after} was put back" if newest.after else champion_words(None)
    reason = f"{reason}: {back}"
    if (newest.action, newest.reason) == ("overruled", reason):
        return None
    return staying(rows, newest.plan, action="overruled", by=MLFLOW, reason=reason)


def differs(projection: Projection, state: RegistryState, now: float) -> bool:
    """Return whether MLflow shows something else than what was carried, so that it must be compared.

    Args:
        projection: How far MLflow follows.
        state: What MLflow shows; its versions are not needed.
        now: Unix time, by the database's clock.
    """
    expected = {projection.alias, *_alive(projection.intents, now)}
    return state.champion not in expected or state.mark != projection.mark


def next_move(rows: Sequence[ChampionMove], **fields: Any) -> ChampionMove:
    """Return a move after these, oldest first, which has no id and no time until it is recorded."""
    number, before = (rows[-1].number, rows[-1].after) if rows else (0, None)
    return ChampionMove(number=number + 1, at=0.0, before=before, **fields)


def staying(rows: Sequence[ChampionMove], plan: ReleasePlan, **fields: Any) -> ChampionMove:
    """Return a move after these, of which there is one at least, that keeps the champion beside another plan."""
    newest = rows[-1]
    return next_move(rows, after=newest.after, promotion=newest.promotion, best=newest.best, plan=plan, **fields)


def _named(state: RegistryState) -> NamedMove | None:
    """Return the tool's tag if it is of the version that the alias points at now."""
    try:
        named = NamedMove.model_validate_json(state.tags.get(MOVED_BY, ""))
    except ValueError:
        return None
    return named if named.version == state.champion else None


def _alive(intents: Sequence[Intent], now: float) -> list[str | None]:
    return [intent.value for intent in intents if intent.until >= now]


def _is_registered(state: RegistryState, version: str | None) -> bool:
    """Return whether Loopline registered a version: it can name its files or the work it was registered for."""
    return bool({KEY, FILES} & {*state.versions.get(version or "", {})})


def journal_text(move: ChampionMove, workspace: str) -> str:
    """Return a move as a tag of the journal, which an older Loopline can read after a way back.

    That one knows two actions: to it all others are promotions, most of them of the champion that is there.

    Args:
        move: The move.
        workspace: The id of the workspace that writes it.
    """
    document = {**move.model_dump(mode="json"), "workspace": workspace}
    if move.action not in ("promote", "rollback"):
        document |= {"action": "promote", _ACTION: move.action}
    return json.dumps(document)


def _journal_move(document: dict[str, Any]) -> ChampionMove:
    """Return a move of the journal; one of an older Loopline has no id, and gets the same one at every look."""
    move = ChampionMove.model_validate({**document, "action": document.get(_ACTION, document["action"])})
    if move.id:
        return move
    return move.model_copy(update={"id": uuid.uuid5(_NAMESPACE, json.dumps(document, sort_keys=True)).hex})


def _with_plan(move: ChampionMove, state: RegistryState) -> ChampionMove:
    """Return a move of an older Loopline with the promotion and the plan that its version's tags hold."""
    tags = state.versions.get(move.after or "", {})
    if move.promotion or move.after != state.champion:
        return move
    return move.model_copy(update={"promotion": tags.get(PROMOTION, ""), "plan": ReleasePlan.of_tags(tags)})
