"""A registry whose champion and registered version a test chooses."""

import pytest

from models.serving.registry import RegisteredVersion
from tasks.mlflow import registry_reader

REGISTERED = RegisteredVersion(number="1", tags={"loopline.key": "k"})


def crown(
    monkeypatch: pytest.MonkeyPatch,
    champion: RegisteredVersion | None,
    registered: RegisteredVersion | None = REGISTERED,
) -> None:
    """The registry has a champion, and the version that the loop registered."""
    monkeypatch.setattr(registry_reader, "named", lambda _, __, name: registered if name.isdecimal() else champion)
