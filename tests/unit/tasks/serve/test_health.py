"""Liveness and readiness differ while a first version is awaited, and while the server ends."""

from types import SimpleNamespace
from typing import Any

import pytest

from tasks.serve.health import why_dead, why_not_ready


def state(**given: Any) -> Any:
    return SimpleNamespace(
        is_ending=given.get("ending", False),
        engine=SimpleNamespace(is_stuck=given.get("stuck", False)),
        loaded={"tiny": SimpleNamespace(is_ready=given.get("loaded", True))},
    )


@pytest.mark.parametrize(
    ("given", "dead", "not_ready"),
    [
        ({}, None, None),
        ({"loaded": False}, None, "no version is loaded yet of tiny"),
        ({"ending": True}, None, "the server is ending"),
        ({"stuck": True}, "a call has not ended for a minute", "a call has not ended for a minute"),
    ],
)
def test_a_server_says_what_is_wrong(given: dict[str, bool], dead: str | None, not_ready: str | None) -> None:
    assert (why_dead(state(**given)), why_not_ready(state(**given))) == (dead, not_ready)
