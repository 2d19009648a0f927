"""Automations of Prefect: events of a project start its `retrain` and `monitor` runs, and notify people.

`loopline deploy` creates them and identifies them by their tags. An automation that a person switched off in Prefect's
UI stays off. An automation that need not change is not updated, because an update resets its count of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from models.pipeline.keys import key_of
from models.project_spec.monitor_and_retrain import Retrain
from models.triggers.signal import Kind
from tasks.prefect import notifications
from tasks.prefect.events import CHAMPION_MOVED, SIGNALS, STORM_S, TAG, owner_tag

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.events.schemas.automations import Automation

WORDS: dict[Kind, str] = {
    "new_data": "new data",
    "decay": "the model decayed",
    "broken_data": "the data is broken",
    "drift": "predictions drifted",
    "person": "a person asked",
}


@dataclass(frozen=True)
class AutomationSpec:
    """The wanted state of an automation; `owner` is a project's name, or the pool for those of no project."""

    name: str
    owner: str
    description: str
    trigger: dict[str, Any]
    actions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """A hash of the content, stored as a tag, which shows whether the server's automation is up to date."""
        content = {"description": self.description, "trigger": self.trigger, "actions": self.actions}
        return f"key:{key_of(content)[:16]}"


def of_project(name: str, policy: Retrain, deployment: UUID) -> list[AutomationSpec]:
    """Return the automations that start a project's retraining: one for each trigger of its policy, and for a person.

    Args:
        name: The project's name.
        policy: The project's `retrain` block; only `on` is read. A schedule is no event.
        deployment: Id of the project's `retrain` deployment.
    """
    kinds: list[Kind] = [kind for kind in policy.on if kind != "schedule"]
    return [_retraining(name, kind, deployment) for kind in dict.fromkeys([*kinds, "person"])]


def of_champion(name: str, deployment: UUID) -> AutomationSpec:
    """Return the automation that starts monitoring when the champion changes: the last run watched another version.

    Args:
        name: The project's name.
        deployment: Id of the project's `monitor` deployment.
    """
    return AutomationSpec(
        name=f"{name}: the champion moved",
        owner=name,
        description=f"{CHAMPION_MOVED}: {name} is watched at once, whoever moved its champion.",
        trigger=_on([CHAMPION_MOVED], {"prefect.resource.id": f"loopline.project.{name}"}, STORM_S),
        actions=[_run(deployment, {})],
    )


def of_pool(pool: str, page: str, blocks: Mapping[str, UUID]) -> list[AutomationSpec]:
    """Return the automations that notify people, for all projects together.

    Runs whose process is gone need no automation: the next worker continues them (`tasks/prefect/flow_runs.py`). An
    automation on missing heartbeats would fire when the server comes back, and end runs that are about to continue.

    Args:
        pool: The workspace's work pool.
        page: Address of Prefect's UI.
        blocks: Ids of the notification blocks, by name; empty: no notifications.
    """
    return [_message(pool, topic, page, blocks) for topic in notifications.TOPICS if blocks]


def apply(client: SyncPrefectClient, pool: str, specs: Sequence[AutomationSpec], keep: set[str]) -> None:
    """Create and update the wanted automations, and delete all others.

    Args:
        client: A client of Prefect's server.
        pool: Only automations of this work pool are changed.
        specs: The wanted automations.
        keep: Owners whose automations are not changed.
    """
    before = [automation for automation in _existing(client, pool) if _owner(automation) not in keep]
    for automation in before:
        same = [spec for spec in specs if spec.name == automation.name]
        if not same:
            client.delete_automation(automation.id)
        elif same[0].key not in automation.tags:
            client.update_automation(automation.id, _core(same[0], pool, automation.enabled))
    for spec in specs:
        if spec.name not in {automation.name for automation in before}:
            client.create_automation(_core(spec, pool, True))


def _retraining(name: str, kind: Kind, deployment: UUID) -> AutomationSpec:
    parameters = {
        "signal": _as_json("{{ event.payload.get('signal') | tojson }}"),
        "trigger": kind,
        "reason": {"__prefect_kind": "jinja", "template": "{{ event.payload.get('reason', '') }}"},
    }
    return AutomationSpec(
        name=f"{name}: {WORDS[kind]}",
        owner=name,
        description=f"{SIGNALS[kind]}: the policy of {name} weighs whether to retrain. Switched off, it stays off.",
        trigger=_on([SIGNALS[kind]], {"prefect.resource.id": f"loopline.project.{name}"}, STORM_S),
        actions=[_run(deployment, parameters)],
    )


def _run(deployment: UUID, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "run-deployment",
        "source": "selected",
        "deployment_id": str(deployment),
        "parameters": parameters,
    }


def _message(
    pool: str, topic: notifications.NotificationTopic, page: str, blocks: Mapping[str, UUID]
) -> AutomationSpec:
    actions = [
        {
            "type": "send-notification",
            "block_document_id": str(block),
            "subject": topic.subject,
            "body": topic.body.replace("PAGE", page),
        }
        for block in blocks.values()
    ]
    related = {"match_related": {"prefect.resource.id": f"prefect.tag.{TAG}"}} if topic.of_runs else {}
    trigger = {**_on(topic.events, topic.match, topic.quiet_s), **related}
    return AutomationSpec(f"{pool}: tell when {topic.name}", pool, f"Tells {', '.join(blocks)}.", trigger, actions)


def _on(events: Sequence[str], match: Mapping[str, Any], within_s: float) -> dict[str, Any]:
    """Return a trigger that fires at once on a project's first event; events within the next seconds are merged."""
    return {
        "posture": "Reactive",
        "expect": list(events),
        "match": dict(match),
        "for_each": ["prefect.resource.id"],
        "threshold": 1,
        "within": within_s,
    }


def _as_json(template: str) -> dict[str, Any]:
    """Return a parameter that is parsed as JSON: templates give text, and text instead of an object fails the run."""
    return {"__prefect_kind": "json", "value": {"__prefect_kind": "jinja", "template": template}}


def _core(spec: AutomationSpec, pool: str, is_enabled: bool) -> Any:
    from prefect.events.schemas.automations import AutomationCore

    return AutomationCore.model_validate(
        {
            "name": spec.name,
            "description": spec.description,
            "enabled": is_enabled,
            "tags": [TAG, f"pool:{pool}", owner_tag(spec.owner), spec.key],
            "trigger": {"type": "event", **spec.trigger},
            "actions": spec.actions,
        }
    )


def _existing(client: SyncPrefectClient, pool: str) -> Iterator[Automation]:
    automations: list[Automation] = []
    while page := client.read_automations(limit=200, offset=len(automations)):
        automations += page
    return (automation for automation in automations if TAG in automation.tags and f"pool:{pool}" in automation.tags)


def _owner(automation: Automation) -> str:
    return next((tag.removeprefix(owner_tag("")) for tag in automation.tags if tag.startswith(owner_tag(""))), "")
