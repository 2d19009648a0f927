"""Release plans: the canary and the shadow beside the champion. A change is a row among the champion's moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.errors import UsageError
from models.serving.registry import ChampionMove, PlanAction, RegisteredVersion
from models.serving.registry_comparison import staying
from models.serving.releases import ReleasePlan, is_one_act, new_act

if TYPE_CHECKING:
    from tasks.mlflow.registry import Registry


def plan_of(champion: RegisteredVersion | None) -> ReleasePlan:
    """Return the release plan of a champion; an empty plan if there is no champion."""
    return ReleasePlan.of_tags(champion.tags) if champion else ReleasePlan()


def change(registry: Registry, plan: ReleasePlan, action: PlanAction, reason: str) -> ChampionMove:
    """Record another plan beside the champion. A canary that has no trial's id yet gets one.

    Raises:
        UsageError: There is no champion, or a version in the plan does not exist or is the champion.
        StoreError: The registry is away.
    """
    for version in plan.versions:
        registry.tags(version)
    if plan.canary is not None and not plan.canary.trial:
        plan = plan.model_copy(update={"canary": plan.canary.model_copy(update={"trial": new_act()})})

    def decide(moves: Sequence[ChampionMove], _: set[str]) -> ChampionMove:
        champion = moves[-1].after if moves else None
        if champion is None:
            raise UsageError(f"{registry.model}: there is no champion yet: `loopline run {registry.model}` makes one")
        if champion in plan.versions:
            raise UsageError(
                f"{registry.model}: version {champion} is the champion and answers already: name another, or "
                f"roll it back first (`loopline rollback {registry.model}`)"
            )
        return staying(moves, plan, action=action)

    return registry.move(decide, reason)


def end(registry: Registry, reason: str, action: PlanAction = "end") -> ChampionMove:
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

    def decide(moves: Sequence[ChampionMove], _: set[str]) -> ChampionMove:
        plan = moves[-1].plan
        is_same = plan.canary is None or plan.canary.version != version or is_one_act(trial, plan.canary.trial)
        return staying(moves, ReleasePlan(), action="return") if version in plan.versions and is_same else moves[-1]

    if registry.champion():
        registry.move(decide, reason)
