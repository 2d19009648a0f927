"""Workspaces that a module's tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running import Loopline

MakeHome = Callable[[str], Loopline]


@pytest.fixture(scope="session")
def make_home(tmp_path_factory: pytest.TempPathFactory, api: str, empty_store: Path, empty_prefect: Path) -> MakeHome:
    """A function that makes an empty workspace."""

    def make(name: str) -> Loopline:
        home = Loopline(tmp_path_factory.mktemp(name) / "home", {"PREFECT_API_URL": api})
        home.begin(empty_store, empty_prefect)
        return home

    return make
