"""Workspaces that a module's tests share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.conftest import make_whole, whole
from tests.running import Loopline

__all__ = ["make_whole", "whole"]

SPEC = """\
goal: {metric: accuracy, good_enough: 0.5}
data:
  source: penguins.csv
  target: species
  split: {by: stratified, validation: 0.2, test: 0.25}
model: {net: mlp, arguments: {layers: 1, hidden: 16}}
train: {epochs: 4, batch: 16, lr: 0.01}
"""
MakeHome = Callable[[str], Loopline]


@pytest.fixture(scope="session")
def make_home(tmp_path_factory: pytest.TempPathFactory, api: str, empty_store: Path, empty_prefect: Path) -> MakeHome:
    """A function that makes an empty workspace."""

    def make(name: str) -> Loopline:
        home = Loopline(tmp_path_factory.mktemp(name) / "home", {"PREFECT_API_URL": api})
        home.begin(empty_store, empty_prefect)
        return home

    return make


@pytest.fixture(scope="session")
def copy_whole(tmp_path_factory: pytest.TempPathFactory, whole: Loopline) -> MakeHome:
    """A function that copies the workspace in which the project `whole` has a champion: a loop takes 5 CPU-seconds."""

    def copy(name: str) -> Loopline:
        home = Loopline(tmp_path_factory.mktemp(name) / "home", dict(whole.environ))
        shutil.copytree(whole.home, home.home, symlinks=True)
        return home

    return copy
