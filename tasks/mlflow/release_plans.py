"""Release plans: the canary and the shadow beside the champion. A change is a row among the champion's moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.errors import GateRefused, UsageError
from models.serving.registry import ChampionMove, PlanAction, RegisteredVersion
from models.serving.registry_comparison import staying
from models.serving.releases import Canary, ReleasePlan, is_one_act, new_act

if TYPE_CHECKING:
    from tasks.mlflow.registry import Registry


def plan_of(champion: RegisteredVersion | None) -> ReleasePlan:
    """Return the release plan of a champion; an empty plan if there is no champion."""
    return ReleasePlan.of_tags(champion.tags) if champion else ReleasePlan()


def begin(
    registry: Registry,
    version: str | None,
    reason: str,
    *,
    share: float | None = None,
    is_shadow: bool = False,
    expected: int | None = None,
) -> ChampionMove:
    """Try a version beside the champion: as a canary that answers a share of the requests, or as a shadow.

    Args:
        registry: Of the model.
        version: The version; None: the challenger.
        reason: Why, for the journal.
        share: Of the requests that the canary answers, 0 to 1; None: no canary.
        is_shadow: Whether it predicts the logged requests as a shadow.
        expected: The number of the newest move that the caller saw; None: whatever it is.

    Raises:
        GateRefused: Somebody else moved the champion, or changed the release, since.
        UsageError: There is no challenger or no champion, or the version does not exist or is the champion.
        StoreError: The registry is away.
    """
    number = version or registry.challenger()
    if number is None:
        raise UsageError(f"{registry.model}: there is no challenger: name a version, as in `--version 4`")
    plan = plan_of(registry.champion())
    if share is not None:
        plan = plan.model_copy(update={"canary": Canary(version=number, share=share)})
    if is_shadow:
        plan = plan.model_copy(update={"shadow": number})
    return change(registry, plan, "shadow" if share is None else "canary", reason, expected)


def stop(registry: Registry, reason: str, *, is_return: bool, expected: int | None = None) -> ChampionMove:
    """End the canary and the shadow; a return without a canary rolls the champion back.

    Args:
        registry: Of the model.
        reason: Why, for the journal.
        is_return: Whether the canary is returned because it does badly.
        expected: As in `begin`.

    Raises:
        GateRefused: Nothing is tried, nothing can be rolled back, or somebody else changed the release since.
        StoreError: The registry is away.
    """
    plan = plan_of(registry.champion())
    if is_return and plan.canary is None and expected is None:
        return registry.rollback(reason)
    if not plan.versions and expected is None:
        raise GateRefused(
            f"{registry.model}: nothing is tried beside the champion: `--canary SHARE` or `--shadow` begins a trial"
        )
    return end(registry, reason, "return" if is_return else "end", expected)


def change(
    registry: Registry, plan: ReleasePlan, action: PlanAction, reason: str, expected: int | None = None
) -> ChampionMove:
    """Record another plan beside the champion. A canary that has no trial's id yet gets one.

    Raises:
        GateRefused: `expected` is no longer the number of the newest move.
        UsageError: There is no champion, or a version in the plan does not exist or is the champion.
        StoreError: The registry is away.
    """
    for version in plan.versions:
        registry.tags(version)
    if plan.canary is not None and not plan.canary.trial:
        plan = plan.model_copy(update={"canary": plan.canary.model_copy(update={"trial": new_act()})})

    def decide(moves: Sequence[ChampionMove], _: set[str]) -> ChampionMove:
        if moves and expected not in (None, moves[-1].number):
            newest = moves[-1]
            raise GateRefused(
                f"{registry.model}: somebody changed the release meanwhile ({newest.action}: {newest.reason}): look "
                "again, then decide"
            )
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


def end(registry: Registry, reason: str, action: PlanAction = "end", expected: int | None = None) -> ChampionMove:
    """End the release plan of the champion.

    Raises:
        GateRefused: `expected` is no longer the number of the newest move.
        UsageError: There is no champion.
        StoreError: The registry is unavailable.
    """
    return change(registry, ReleasePlan(), action, reason, expected)


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
