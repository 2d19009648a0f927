"""The automations of a project are those that its policy names; only what changed is made anew."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from models.project_spec.monitor_and_retrain import Retrain
from tasks.prefect.automations import AutomationSpec, apply, of_champion, of_pool, of_project

DEPLOYMENT = uuid4()


class Server:
    """Keeps automations as Prefect's does; counts what was written."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}
        self.written: list[str] = []

    def read_automations(self, limit: int, offset: int) -> list[Any]:
        return list(self.kept.values())[offset : offset + limit]

    def create_automation(self, core: Any) -> None:
        self._keep(uuid4(), core, "create")

    def update_automation(self, number: Any, core: Any) -> None:
        self._keep(number, core, "update")

    def delete_automation(self, number: Any) -> None:
        self.written.append(f"delete {self.kept.pop(number).name}")

    def _keep(self, number: Any, core: Any, verb: str) -> None:
        self.kept[number] = SimpleNamespace(id=number, name=core.name, tags=core.tags, enabled=core.enabled)
        self.written.append(f"{verb} {core.name}")


def told(server: Server, wanted: list[AutomationSpec], keep: AbstractSet[str] = frozenset()) -> list[str]:
    server.written.clear()
    apply(server, "loopline", wanted, set(keep))  # type: ignore[arg-type]  # the four calls that it makes
    return sorted(server.written)


def test_each_trigger_named_and_a_person_have_one() -> None:
    made = of_project("tiny", Retrain(on=["decay", "schedule", "decay"]), DEPLOYMENT)
    assert [one.name for one in made] == ["tiny: the model decayed", "tiny: a person asked"]
    assert made[0].trigger["expect"] == ["loopline.model.decayed"]
    assert made[0].trigger["match"] == {"prefect.resource.id": "loopline.project.tiny"}
    assert made[0].actions[0]["deployment_id"] == str(DEPLOYMENT)


def test_a_new_champion_is_watched_at_once() -> None:
    made = of_champion("tiny", DEPLOYMENT)
    assert (made.trigger["expect"], made.trigger["match"]) == (
        ["loopline.champion.moved"], {"prefect.resource.id": "loopline.project.tiny"}
    )  # fmt: skip
    assert made.actions[0]["deployment_id"] == str(DEPLOYMENT)


def test_nobody_wants_to_hear_so_nothing_is_sent() -> None:
    assert of_pool("loopline", "http://here", {}) == []
    made = of_pool("loopline", "http://here", {"webhook": uuid4()})
    (asked,) = [one for one in made if "person is asked" in one.name]
    assert "http://here/runs/flow-run/{{ event.payload.decision.flow_run }}" in asked.actions[0]["body"]


def test_only_what_changed_is_written_and_what_is_gone_is_removed() -> None:
    server = Server()
    tiny, other = (of_project(name, Retrain(on=["decay"]), DEPLOYMENT) for name in ("tiny", "other"))
    assert len(told(server, tiny + other)) == 4
    assert told(server, tiny + other) == []
    assert told(server, tiny, {"other"}) == [], "the other one was not asked about: it keeps what it has"
    moved = of_project("tiny", Retrain(on=["decay"]), uuid4())
    both = ["update tiny: a person asked", "update tiny: the model decayed"]
    assert told(server, moved, {"other"}) == both
    person = of_project("tiny", Retrain(), DEPLOYMENT)
    assert told(server, person, {"other"}) == ["delete tiny: the model decayed", "update tiny: a person asked"]
    assert told(server, person) == ["delete other: a person asked", "delete other: the model decayed"]


def test_messages_go_with_the_address_that_they_went_to() -> None:
    server = Server()
    assert told(server, of_pool("loopline", "http://here", {"slack": uuid4()}))
    assert len(server.kept) > 3
    told(server, of_pool("loopline", "http://here", {}))
    assert server.kept == {}


def test_switched_off_stays_off_even_when_it_is_updated() -> None:
    server = Server()
    told(server, of_project("tiny", Retrain(), DEPLOYMENT))
    (kept,) = server.kept.values()
    kept.enabled = False
    told(server, of_project("tiny", Retrain(), uuid4()))
    (kept,) = server.kept.values()
    assert not kept.enabled
