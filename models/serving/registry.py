"""What the model registry holds: registered versions, and the moves of the champion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from models.frozen_model import FrozenModel
from models.judge.verdict import Estimate, Verdict

KEY = "loopline.key"
FILES = "loopline.files"
"""The tag with the SHA-256 of each file of a version."""
RIVAL = "loopline.rival"
"""The tag with the identity of the champion that a version was judged against; empty for none."""
JUDGED_BEST = "loopline.judged_best"
"""The tag with the identity of the best champion so far that it was judged against too; empty for none."""
BEST = "loopline.best"
"""The tag with the identity of the version that stays the best champion so far while this one serves; empty: itself."""


class RegisteredVersion(FrozenModel):
    """A registered version: its number and tags."""

    number: str
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
    """One entry of a journal in the registry's tags; a newer Loopline may write more of it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    number: int
    at: float
    by: str = ""
    reason: str = ""


class ChampionMove(JournalEntry):
    """The champion moved from one version to another, or is about to move."""

    action: Literal["promote", "rollback"]
    before: str | None
    after: str | None
    loop_id: str = ""


def champions_in_force(journal: Sequence[ChampionMove]) -> list[str]:
    """Return the row of champions up to the current one, oldest first; a rollback removes the last of the row."""
    champions: list[str] = []
    for move in journal:
        if move.action == "rollback":
            del champions[-1:]
            while move.after in champions[:-1] and champions[-1] != move.after:  # skip those deleted in MLflow
                del champions[-1]
            continue
        if move.before is not None and not champions:
            champions.append(move.before)  # a person had set the alias in MLflow before the first promotion
        if move.after is not None and move.after not in champions[-1:]:
            champions.append(move.after)
    return champions
