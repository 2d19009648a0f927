"""Notifications by Prefect's notification blocks, configured by the environment of `loopline up` and `deploy`.

| variable | is |
|---|---|
| `LOOPLINE_NOTIFY_SLACK` | a Slack webhook, `https://hooks.slack.com/services/...` |
| `LOOPLINE_NOTIFY_EMAIL` | an Apprise address, `mailtos://user:password@smtp.example.org?to=team@example.org` |
| `LOOPLINE_NOTIFY_WEBHOOK` | any address; receives `{"subject": ..., "body": ...}` as JSON by POST |
| `LOOPLINE_NOTIFY_WEBHOOK_TOKEN` | sent to the webhook as `Authorization: Bearer ...` |

Prefect stores the addresses encrypted; they are not in any log or web page.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import SecretStr

from models.errors import UsageError
from tasks.prefect.events import CHAMPION_MOVED, DECISION_MADE, LOOP_ENDED, SIGNALS

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

SLACK, EMAIL, WEBHOOK, TOKEN = (f"LOOPLINE_NOTIFY_{name}" for name in ("SLACK", "EMAIL", "WEBHOOK", "WEBHOOK_TOKEN"))
SCHEMES = {SLACK: ("https://", "http://"), EMAIL: ("mailto://", "mailtos://"), WEBHOOK: ("https://", "http://")}
NAMES = {SLACK: "slack", EMAIL: "email", WEBHOOK: "webhook"}
TEXT = "{{ event.payload.text }}"


@dataclass(frozen=True)
class NotificationTopic:
    """A topic of notifications: its events, their resources, and the text of the message.

    `quiet_s`: seconds after a project's message in which no other message of this topic is sent. `of_runs`: the events
    are Prefect's own events of our flow runs.
    """

    name: str
    events: list[str]
    subject: str
    body: str = TEXT
    match: Mapping[str, Any] = field(default_factory=lambda: {"prefect.resource.id": "loopline.project.*"})
    quiet_s: float = 60.0
    of_runs: bool = False


PROJECT = "{{ event.resource.name }}"
TOPICS = (
    NotificationTopic("data is broken", [SIGNALS["broken_data"]], f"{PROJECT}: its data is broken"),
    NotificationTopic("a model decays", [SIGNALS["decay"]], f"{PROJECT}: the model decays"),
    NotificationTopic(
        "data is rejected",
        [LOOP_ENDED],
        f"{PROJECT}: data was rejected",
        match={"prefect.resource.id": "loopline.project.*", "loopline.outcome": "rejected"},
    ),
    NotificationTopic(
        "a run fails",
        ["prefect.flow-run.Failed", "prefect.flow-run.Crashed"],
        "{{ flow_run.name }}: {{ flow_run.state.name }}",
        "{{ flow_run.state.message }}\nPAGE/runs/flow-run/{{ flow_run.id }}",
        {"prefect.resource.id": "prefect.flow-run.*"},
        of_runs=True,
    ),
    NotificationTopic(
        "a person is asked",
        [DECISION_MADE],
        f"{PROJECT}: may it be retrained?",
        f"{TEXT}\nAnswer (Resume): PAGE/runs/flow-run/{{{{ event.payload.decision.flow_run }}}}",
        {"prefect.resource.id": "loopline.project.*", "loopline.action": "ask"},
    ),
    NotificationTopic("a champion moves", [CHAMPION_MOVED], f"{PROJECT}: another champion", quiet_s=1.0),
)


def wanted(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the addresses in the environment, by variable.

    Raises:
        UsageError: An address has the wrong scheme for its variable; the message does not repeat the address.
    """
    urls = {name: environ[name] for name in SCHEMES if environ.get(name)}
    for name, address in urls.items():
        if not address.startswith(SCHEMES[name]):
            expected = " or ".join(SCHEMES[name])
            raise UsageError(f"{name}: got another kind of address, expected one that begins with {expected}")
    return urls


def make_blocks(client: SyncPrefectClient, pool: str) -> dict[str, UUID]:
    """Save the environment's addresses as Prefect blocks and delete blocks without an address; return ids by name.

    Raises:
        UsageError: An address has the wrong scheme.
    """
    addresses = wanted(os.environ)
    block_ids: dict[str, UUID] = {}
    for variable, kind in NAMES.items():
        name = f"{pool}-{kind}"
        if variable in addresses:
            block = _block(variable, addresses[variable], os.environ.get(TOKEN, ""), pool)
            block_ids[kind] = UUID(str(block.save(name, overwrite=True)))
        else:
            _remove(client, name, "custom-webhook" if variable == WEBHOOK else "slack-webhook")
    return block_ids


def _block(variable: str, address: str, token: str, pool: str) -> Any:
    from prefect.blocks.fields import SecretDict
    from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook

    if variable != WEBHOOK:
        return SlackWebhook(url=SecretStr(address))  # Prefect passes it to Apprise, which supports mailto too
    secrets = {"address": address, **({"token": token} if token else {})}
    return CustomWebhookNotificationBlock(
        name=pool,
        url="{{address}}",
        json_data={"subject": "{{subject}}", "body": "{{body}}"},
        headers={"Authorization": "Bearer {{token}}"} if token else None,
        secrets=SecretDict(secrets),
    )


def _remove(client: SyncPrefectClient, name: str, slug: str) -> None:
    from prefect.exceptions import ObjectNotFound

    try:
        client.delete_block_document(client.read_block_document_by_name(name, slug, include_secrets=False).id)
    except ObjectNotFound:
        return
