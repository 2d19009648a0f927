"""The key parts that the present champion decides: whom a model is judged against, and how equal rows are split."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from models.errors import StoreError
from models.pipeline.keys import Parts
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Data
from models.serving import registry
from models.serving.registry import RegisteredVersion

RIVAL = "input:champion"
BEST_RIVAL = "input:best champion so far"
EQUAL_ROWS = "input:equal rows"


class Rival(NamedTuple):
    """The version that a trained model is judged against: its identity, and the number of the current champion.

    `best` is the identity of the best champion so far, empty where that is the champion. Only identities are in the
    key, so that a model that became the champion is not judged again.
    """

    identity: str
    champion: str | None
    best: str = ""

    @property
    def is_let_through(self) -> bool:
        """Whether a model that was the first one is the champion by now: judged again, it needs no person again."""
        return not self.identity and self.champion is not None


def rival_parts(champion: RegisteredVersion | None, weights: str) -> Parts:
    """Return the identities of the versions that a trained model is compared with; empty for none.

    They are the champion and the best champion so far or, if the model itself is the champion by now, those that it was
    compared with.

    Args:
        champion: The present one.
        weights: SHA-256 of the trained model's weights.
    """
    if champion is None:
        return {RIVAL: ""}
    has_own_weights = champion.weights == weights
    rival = champion.tags.get(registry.RIVAL, "") if has_own_weights else champion.identity
    best = champion.tags.get(registry.JUDGED_BEST if has_own_weights else registry.BEST, "")
    return {RIVAL: rival, **({BEST_RIVAL: best} if best else {})}


def equal_rows_parts(
    data: Data, records: Iterable[StepRecord], champion: Callable[[], RegisteredVersion | None]
) -> Parts:
    """Return whether equal rows are together in a split or apart: as the spec says, or as the last loop had it.

    A project without such a loop keeps them apart if it has a champion, which was made so; else they are together.
    Empty for a split that does not deal rows one by one.

    Args:
        data: The spec's data block.
        records: Of the step `prepare`, newest first.
        champion: Looks up the present one.
    """
    if not data.deals_rows:
        return {}
    rule: str | None = data.split.equal_rows
    if rule is None:
        before = next((record for record in records if EQUAL_ROWS in record.parts), None)
        rule = before.parts[EQUAL_ROWS] if before else None
    if rule is None:
        with contextlib.suppress(StoreError):  # without the registry nothing tells of a champion: as in a new project
            rule = "apart" if champion() is not None else "together"
    return {EQUAL_ROWS: rule or "together"}
