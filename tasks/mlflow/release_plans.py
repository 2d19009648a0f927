"""Release plans in the registry: the canary and the shadow beside the champion, and the journal of plan changes.

The plan is a tag of the champion's version, so that it is read with the champion and ends with the champion. The
journal is stored in tags of the registered model (`loopline.releases.000001`), like the journal of the champions.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal

from models.errors import UsageError
from models.serving.registry import JournalEntry, RegisteredVersion
from models.serving.releases import PLAN, ReleasePlan, is_one_act
from tasks.mlflow.registry_reader import registered

if TYPE_CHECKING:
    from tasks.mlflow.registry import Registry

JOURNAL = "loopline.releases."
Action = Literal["canary", "shadow", "end", "return"]


class ReleasePlanEntry(JournalEntry):
    """One entry of the journal. `champion`: the version that has the plan."""

    action: Action
    champion: str
    plan: ReleasePlan


def plan_of(champion: RegisteredVersion | None) -> ReleasePlan:
    """Return the release plan of a champion; an empty plan if there is no champion."""
    return ReleasePlan.of_tags(champion.tags) if champion else ReleasePlan()


def change(registry: Registry, plan: ReleasePlan, action: Action, reason: str) -> ReleasePlanEntry:
    """Write a plan into the journal, then set it. A canary that has no trial's id yet gets one.

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
                raise UsageError(
                    f"{registry.model}: version {version} is the champion and answers already: name another, or "
                    f"roll it back first (`loopline rollback {registry.model}`)"
                )
            registry.tags(version)
        if plan.canary is not None and not plan.canary.trial:
            canary = plan.canary.model_copy(update={"trial": uuid.uuid4().hex[:12]})
            plan = plan.model_copy(update={"canary": canary})
        return _set(registry, champion, plan, action, reason)


def end(registry: Registry, reason: str, action: Action = "end") -> ReleasePlanEntry:
    """End the release plan of the champion.

    Raises:
        UsageError: There is no champion.
        StoreError: The registry is unavailable.
    """
    return change(registry, ReleasePlan(), action, reason)


def give_back(registry: Registry, version: str, reason: str, trial: str = "") -> None:
    """End the plan that has this version; nothing if it or this trial has ended, as when another server was first.

    Raises:
        StoreError: The registry is unavailable.
    """
    with registry.locked():
        champion = registry.alias("champion")
        plan = ReleasePlan.of_tags(registry.tags(champion)) if champion else ReleasePlan()
        is_same = plan.canary is None or plan.canary.version != version or is_one_act(trial, plan.canary.trial)
        if champion and version in plan.versions and is_same:
            _set(registry, champion, ReleasePlan(), "return", reason)


def _set(registry: Registry, champion: str, plan: ReleasePlan, action: Action, reason: str) -> ReleasePlanEntry:
    fields = {"action": action, "champion": champion, "plan": plan}
    entry = registry.write(JOURNAL, ReleasePlanEntry, reason, **fields)
    registry.set_tags(champion, {PLAN: plan.model_dump_json()})
    return entry


def entries(model: str) -> list[ReleasePlanEntry]:
    """Return every change of a plan, newest first.

    Raises:
        StoreError: The registry is unavailable.
    """
    return [ReleasePlanEntry.model_validate_json(text) for text in registered(model).journal(JOURNAL)]
