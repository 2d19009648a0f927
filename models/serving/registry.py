"""What the model registry holds: registered versions, and the moves of the champion."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from models.frozen_model import FrozenModel
from models.judge.verdict import Estimate, Verdict
from models.serving.releases import PLAN, PROMOTION, ReleasePlan

KEY = "loopline.key"
FILES = "loopline.files"
"""The tag with the SHA-256 of each file of a version."""
RIVAL = "loopline.rival"
"""The tag with the identity of the champion that a version was judged against; empty for none."""
JUDGED_BEST = "loopline.judged_best"
"""The tag with the identity of the best champion so far that it was judged against too; empty for none."""
BEST = "loopline.best"
"""The tag with the identity of the version that stays the best champion so far while this one serves; empty: itself."""
UNRECORDED = "loopline.unrecorded"
"""The tag of a version or run in MLflow that the state database does not name: its process was killed or paused.

A version bears it from its first moment until its row is written. It is never served. A run bears it if another process
has delivered the loop's lines meanwhile, into a run of its own.
"""
WITHDRAWN = "loopline.withdrawn"
"""The tag of a removed version in the state database of which MLflow still has something: its logged model, or all."""


def champion_words(number: str | None) -> str:
    """Return who is champion, in words: `the champion is version 3`; `there is no champion` for None."""
    return f"the champion is version {number}" if number else "there is no champion"


def version_words(number: str | None) -> str:
    """Return a champion of a row in words, such as `version 3`; `no champion` for None."""
    return f"version {number}" if number else "no champion"


def described(tags: Mapping[str, str]) -> str:
    """Return a version's description for the registry's page, in Markdown, from its tags; empty if it has none."""
    decision, _, verdict = tags.get("loopline.verdict", "").partition(": ")
    facts = {
        "Test rows": tags.get("loopline.metric", "").replace("=", " "),
        "Target": tags.get("loopline.target", ""),
        "Data": tags.get("loopline.dataset", ""),
        "Loop": tags.get("loopline.loop_id", ""),
    }
    lines = [f"* {name}: `{value}`" for name, value in facts.items() if value]
    return "\n\n".join(filter(None, (verdict or decision, "\n".join(lines))))


class RegisteredVersion(FrozenModel):
    """A registered version: its number and tags."""

    number: str
    place: str = Field("", description="URI of its files; empty where only the registry knows it.")
    tags: dict[str, str] = Field(default_factory=dict)
    verdict: Verdict | None = Field(None, description="None where its file was not read or cannot be read.")

    @property
    def weights(self) -> str:
        """SHA-256 of its weights."""
        return self.tags.get("loopline.weights_sha256", "")

    @property
    def key(self) -> str:
        """The key of the work that it was registered for."""
        return self.tags.get(KEY, "")

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of each file, by its name; empty if it was registered without."""
        return dict(json.loads(self.tags.get(FILES, "{}")))

    @property
    def identity(self) -> str:
        """Number and weights, by which a verdict names the version that it compared with."""
        return f"{self.number}:{self.weights[:16]}"

    @property
    def loop_id(self) -> str:
        """The loop that registered it, or judged it last; empty if that is not known."""
        return self.tags.get("loopline.loop_id", "")

    @property
    def metric(self) -> str:
        """`name=value`, as it was registered."""
        return self.tags.get("loopline.metric", "")

    @property
    def estimate(self) -> Estimate | None:
        """Its own metric on the frozen test rows."""
        return self.verdict.challenger if self.verdict else None


class JournalEntry(BaseModel):
    """An entry of a journal in MLflow's tags, as an older Loopline wrote it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    number: int
    at: float
    by: str = ""
    reason: str = ""


PlanAction = Literal["canary", "shadow", "end", "return"]
Action = Literal["promote", "rollback", "removed", "overruled", "adopt"] | PlanAction
MLFLOW = "MLflow"
"""The actor of a move that was made in MLflow: it stores no name, no time and no counter of an alias."""


class ChampionMove(JournalEntry):
    """A change of what serves: one row of the state database; a newer Loopline may write more of it.

    The newest row is the whole state of what serves: the champion `after`, the plan beside it, its promotion.

    Args:
        number: Counts the project's moves from 1 on.
        id: Unlike the number never given twice, not even after a restore of the database.
        at: Unix time, seconds, by the database's clock.
        by: Account and host of a command, the dashboard, a server's name, a loop's id, or "MLflow".
        reason: Why, in the actor's words.
        action: What was done: `removed` where the champion was deleted in MLflow, `overruled` where a move in MLflow
            came after a row that was not carried there yet: the row wins, and the alias is put back.
        before: The champion before; None: there was none.
        after: The champion from now on, the same as `before` where only the plan changes; None: there is none.
        plan: What is tried beside the champion.
        promotion: The id of the promotion by which `after` serves: a version that is promoted again has another.
        best: The value of the tag BEST of `after`; None: as it was registered.
        loop_id: The loop that moved it; empty for a person or a server.
    """

    id: str = ""
    action: Action
    before: str | None
    after: str | None
    plan: ReleasePlan = ReleasePlan()
    promotion: str = ""
    best: str | None = None
    loop_id: str = ""

    def serving(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return the tags of the champion while this row is the newest, from its own `tags`."""
        plan = self.plan.model_dump_json() if self.plan.versions else ""
        best = {} if self.best is None else {BEST: self.best}
        return {**tags, PROMOTION: self.promotion, PLAN: plan, **best}


def champions_in_force(moves: Sequence[ChampionMove]) -> list[str]:
    """Return the row of champions up to the last one, oldest first; a rollback removes those after its target."""
    champions: list[str] = []
    for move in moves:
        if move.after in (move.before, None):  # only the plan changed, a move was overruled, or a version removed
            continue
        if move.action == "rollback":
            if champions[-1:] == [move.before]:
                del champions[-1]
            while move.after in champions and champions[-1] != move.after:  # skip those deleted in MLflow
                del champions[-1]
            continue
        if move.before is not None and not champions:
            champions.append(move.before)  # a person had set the alias in MLflow before the first promotion
        if move.after is not None and move.after not in champions[-1:]:
            champions.append(move.after)
    return champions


def back_from(moves: Sequence[ChampionMove], removed: Collection[str]) -> str | None:
    """Return the version to which a rollback goes: the last champion in force before the newest that is not removed.

    Args:
        moves: The project's moves, oldest first.
        removed: Versions that were deleted in MLflow.
    """
    now = moves[-1].after if moves else None
    candidates = (version for version in reversed(champions_in_force(moves)) if version not in removed)
    return next((version for version in candidates if version != now), None)
