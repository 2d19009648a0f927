"""What an action of the dashboard is: a question with what the person saw, and what is done if it is confirmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import FormData

from models.report.facts import ProjectFacts
from tasks.dashboard.acting import ActionResult
from tasks.host.workspace import Workspace

REASON = "a person asked on the overview page"
MOST_CHARACTERS = 500


@dataclass(frozen=True)
class Confirmation:
    """The content of a confirmation page; `shown` has the values that the person saw and the form carries."""

    question: str
    lines: list[str]
    word: str
    shown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """An action: `ask` returns its confirmation, or None if there is nothing to do; `act` runs the action.

    `ask` gets the address's parameters too. `is_prepared`: whether it runs in a process that is started when the person
    is asked. `page`: the page of the project that its result leads back to.
    """

    ask: Callable[[ProjectFacts, Mapping[str, str]], Confirmation | None]
    act: Callable[[Workspace, ProjectFacts, FormData], ActionResult]
    is_prepared: bool = False
    page: str = ""


def text_of(form: FormData, name: str) -> str:
    """Return a field of a form as one line of text, cut to 500 characters."""
    return " ".join(str(form.get(name, "")).split())[:MOST_CHARACTERS]


def reason_of(form: FormData) -> str:
    """Return the reason that the person gave, or that there is one."""
    return text_of(form, "reason") or REASON
