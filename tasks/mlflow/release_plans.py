"""Release plans in the registry: the canary and the shadow beside the champion, and the journal of plan changes.

The plan is a tag of the champion's version, so that it is read with the champion and ends with the champion. The
journal is stored in tags of the registered model (`loopline.releases.000001`), like the journal of the champions.
"""

from __future__ import annotations

import time
from typing import Literal

from pydantic import BaseModel, ConfigDict

from models.errors import UsageError
from models.serving.releases import PLAN, ReleasePlan
from tasks.host import processes
from tasks.mlflow.registry import Registry
from tasks.mlflow.registry_reader import RegisteredVersion

JOURNAL = "loopline.releases."
Action = Literal["canary", "shadow", "end", "return"]


class ReleasePlanEntry(BaseModel):
    """One entry of the journal. `champion`: the version that has the plan."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    number: int
    action: Action
    champion: str
    plan: ReleasePlan
    at: float
    by: str
    reason: str = ""


def plan_of(champion: RegisteredVersion | None) -> ReleasePlan:
    """Return the release plan of a champion; an empty plan if there is no champion."""
    return ReleasePlan.of_tags(champion.tags) if champion else ReleasePlan()


def change(registry: Registry, plan: ReleasePlan, action: Action, reason: str) -> ReleasePlanEntry:
    """Write a plan into the journal, then set it.

    Raises:
        UsageError: There is no champion, or a version in the plan does not exist or is the champion.
        StoreError: The registry is away.
    """
    with registry.locked():
        champion = registry.alias("champion")
        if champion is None:
            raise UsageError(f"{registry.model}: there is no champion yet: `loopline run {registry.model}` makes one")
        for version in plan.versions:
            if version == champion:
                raise UsageError(f"{registry.model}: version {version} is the champion: it answers already")
            registry.tags(version)
        entry = ReleasePlanEntry(
            number=max((each.number for each in entries(registry)), default=0) + 1,
            action=action,
            champion=champion,
            plan=plan,
            at=time.time(),
            by="{host}:{pid}".format(**processes.identity()),
            reason=reason[:1000],
        )
        registry.set_model_tag(f"{JOURNAL}{entry.number:06d}", entry.model_dump_json())
        registry.set_tags(champion, {PLAN: plan.model_dump_json()})
    return entry


def end(registry: Registry, reason: str, action: Action = "end") -> ReleasePlanEntry:
    """End the release plan of the champion.

    Raises:
        UsageError: There is no champion.
        StoreError: The registry is unavailable.
    """
    return change(registry, ReleasePlan(), action, reason)


def entries(registry: Registry) -> list[ReleasePlanEntry]:
    """Return every change of a plan, oldest first."""
    texts = [value for name, value in registry.model_tags().items() if name.startswith(JOURNAL)]
    return sorted((ReleasePlanEntry.model_validate_json(text) for text in texts), key=lambda entry: entry.number)
