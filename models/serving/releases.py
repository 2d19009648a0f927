"""The release plan: the one document by which all processes of a server choose a version.

Only the release controller writes it, after it has checked the files; workers load the versions in it, and route
requests by it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from models.project_spec.serve import CanaryRule

PLAN = "loopline.release"
"""The tag of the champion's version that holds the plan; so a plan ends together with its champion."""
PROMOTION = "loopline.promotion"
"""The tag of the champion's version with the id of its promotion: a version that is promoted again has another."""


class Canary(BaseModel):
    """A version that answers a share of the requests; from `until` on (Unix time) all of them, if `until` is set.

    `trial`: the trial's id, by which servers tell it from an earlier one of the same version; empty in older plans.
    """

    model_config = ConfigDict(frozen=True)

    version: str
    share: float = Field(gt=0, lt=1)
    until: float | None = None
    trial: str = ""


class ReleasePlan(BaseModel):
    """The versions that a user wants to try beside the champion."""

    model_config = ConfigDict(frozen=True)

    canary: Canary | None = None
    shadow: str | None = None

    @classmethod
    def of_tags(cls, tags: Mapping[str, str]) -> ReleasePlan:
        """Return the plan in a champion's tags; an empty plan if there is none or it cannot be read."""
        try:
            return cls.model_validate_json(tags.get(PLAN) or "{}")
        except ValueError:
            return cls()

    @property
    def versions(self) -> list[str]:
        """The versions in the plan."""
        return [version for version in (self.canary and self.canary.version, self.shadow) if version]


class Release(BaseModel):
    """The versions that a project's server uses.

    Args:
        generation: Incremented with each change of the versions that answer.
        since: Start of this generation; Unix time.
        stable: Answers all requests except the canary's; None while there is no version.
        promotion: The id of the promotion of `stable`; empty if it is not known.
        previous: The stable version before; it stays loaded for an instant rollback.
        canary: Answers a share of the requests.
        shadow: Answers no requests: another process compares it by the log.
        refused: Version -> why it was not released.
        returned: Version -> why it was rolled back; it is not released again while the registry still names it for the
            same trial or promotion.
        returned_from: Version -> id of the trial or promotion in which it was rolled back; empty if it is not known.
        away: Why the server does not know what should serve now, and what it goes on with; empty if it knows.
    """

    model_config = ConfigDict(frozen=True)

    generation: int = 0
    since: float = 0.0
    stable: str | None = None
    promotion: str = ""
    previous: str | None = None
    canary: Canary | None = None
    shadow: str | None = None
    refused: dict[str, str] = Field(default_factory=dict)
    returned: dict[str, str] = Field(default_factory=dict)
    returned_from: dict[str, str] = Field(default_factory=dict)
    away: str = ""

    @property
    def loaded(self) -> list[str]:
        """The versions that a worker keeps loaded."""
        canary = self.canary.version if self.canary else None
        return list(dict.fromkeys(version for version in (self.stable, canary, self.previous) if version))

    def pick(self, key: str) -> str | None:
        """Return the version that answers a request: the same version for the same key."""
        if self.canary is not None and place_of(key) < self.canary.share:
            return self.canary.version
        return self.stable

    @property
    def trial(self) -> str:
        """The id that servers with the same release have in common: of its canary's trial, or else its promotion."""
        return self.canary.trial if self.canary else self.promotion

    @property
    def words(self) -> str:
        """The versions that answer, as text for a person: `version 4 answers 10 %, version 3 the rest`."""
        if self.stable is None:
            return "no version answers yet"
        shadow = f"; version {self.shadow} is a shadow" if self.shadow else ""
        if self.canary is None:
            return f"version {self.stable} answers{shadow}"
        return f"version {self.canary.version} answers {self.canary.share:.0%}, version {self.stable} the rest{shadow}"

    @property
    def troubles(self) -> list[str]:
        """The refused and rolled-back versions with their reasons, as texts for a person."""
        refused = [f"version {version} is refused: {reason}" for version, reason in self.refused.items()]
        return refused + [
            f"version {version} gave its place back: {reason}" for version, reason in self.returned.items()
        ]

    def answers_as(self, other_release: Release) -> bool:
        """Return True if both route all requests alike, load the same versions, and began by the same act."""
        versions = (self.stable, self.previous, self.canary)
        return is_one_act(self.promotion, other_release.promotion) and versions == (
            other_release.stable,
            other_release.previous,
            other_release.canary,
        )


def new_act() -> str:
    """Return the id of a new trial or promotion: a version that is tried or promoted again has another."""
    return uuid.uuid4().hex[:12]


def is_one_act(act: str, other_act: str) -> bool:
    """Return whether two ids may be of the same trial or promotion; an older Loopline gave none."""
    return "" in (act, other_act) or act == other_act


def place_of(key: str) -> float:
    """Map a key to a number between 0 and 1: evenly distributed, and the same on every machine."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) / 2**64


def release_of(document: Mapping[str, Any]) -> Release | None:
    """Parse a stored release; None for an empty document."""
    return Release.model_validate(document) if document else None


def wanted(
    now: Release,
    champion: str | None,
    plan: ReleasePlan,
    refused: Mapping[str, str],
    rule: CanaryRule | None,
    moment: float,
    promotion: str = "",
) -> Release:
    """Return the release that should be live, from the live one and the registry's state.

    Args:
        now: The live release.
        champion: The registry's champion; None: it has none, and the live release stays.
        plan: The champion's release plan.
        refused: Version -> why it cannot be released.
        rule: The canary rule of the champion's spec; None: release at once. A return to the previous version is at
            once.
        moment: Unix time.
        promotion: The id of the champion's promotion; empty if it is not known.
    """
    named = {champion, *plan.versions}
    acts = {str(champion): promotion}
    if plan.canary:
        acts[plan.canary.version] = plan.canary.trial
    returned = {
        version: reason
        for version, reason in now.returned.items()
        if version in named and is_one_act(now.returned_from.get(version, ""), acts.get(version, ""))
    }
    barred = {*refused, *returned}
    changed: dict[str, Any] = {"refused": dict(refused), "returned": returned, "canary": None, "shadow": None}
    if champion is not None and (champion not in barred or champion == now.stable):
        trial = _on_trial(now, champion, rule, moment, promotion) if rule else None
        is_new = now.stable is not None and champion not in (now.stable, now.previous)
        if trial and trial.until and is_new and moment < trial.until:
            changed["canary"] = trial
        else:
            is_allowed = plan.canary is not None and plan.canary.version not in {*barred, champion}
            changed["canary"] = plan.canary if is_allowed else None
            changed["shadow"] = plan.shadow if plan.shadow not in {*refused, champion} else None
            changed["stable"], changed["previous"] = champion, now.previous if champion == now.stable else now.stable
            changed["promotion"] = promotion
    new = now.model_copy(update=changed)
    return new if new.answers_as(now) else new.model_copy(update={"generation": now.generation + 1, "since": moment})


def _on_trial(now: Release, champion: str, rule: CanaryRule, moment: float, promotion: str) -> Canary:
    """Return the trial of this promotion: the one under way, or a new one."""
    canary = now.canary
    if canary is not None and canary.until is not None and (canary.version, canary.trial) == (champion, promotion):
        return canary
    return Canary(version=champion, share=rule.share, until=moment + 60 * rule.minutes, trial=promotion)


def taken_back(now: Release, version: str, reason: str, moment: float) -> Release | None:
    """Return the release after the rollback of a version: its requests go to the version that answered them before.

    None if the version answers no requests, or no version can replace it.
    """
    changed: dict[str, Any]
    if now.canary is not None and now.canary.version == version:
        changed, act = {"canary": None}, now.canary.trial
    elif now.stable == version and now.previous is not None:
        changed = {"stable": now.previous, "promotion": "", "previous": None, "canary": None, "shadow": None}
        act = now.promotion
    else:
        return None
    returned = {**now.returned, version: reason}
    changed |= {"returned": returned, "returned_from": {**now.returned_from, version: act}}
    changed |= {"generation": now.generation + 1, "since": moment}
    return now.model_copy(update=changed)
