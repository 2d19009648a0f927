"""A project that is trained in seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MakeOnce
from tests.running import Loopline

SPEC = """\
goal: {metric: accuracy, good_enough: 0.8}
data:
  source: penguins.csv
  target: species
  split: {by: stratified, validation: 0.2, test: 0.25}
  features: {drop: [year]}
model: {net: mlp, arguments: {layers: 1, dropout: 0.1}}
search:
  trials: 3
  epochs: 4
  space:
    train.lr: {low: 0.003, high: 0.03, log: true}
    model.hidden: {choices: [16, 32]}
train: {epochs: 10, batch: 8, lr: 0.01, threads: 1}
judge: {margin: 0.05, min_samples: 50}
"""
# Trained by two ranks, slowly enough that checkpoints are written: they may take only a share of the time.
TWO_RANKS = (
    SPEC.replace("net: mlp, arguments: {layers: 1, dropout: 0.1}", "net: './slow.py:Slow'")
    .replace("threads: 1", "threads: 1, ranks: 2")
    .replace("trials: 3\n  epochs: 4", "trials: 2\n  epochs: 1")
)
SLOW = """\
import time
import torch


class Slow(torch.nn.Module):
    def __init__(self, num_numeric, num_outputs, hidden=16):
        super().__init__()
        first, last = torch.nn.Linear(num_numeric, hidden), torch.nn.Linear(hidden, num_outputs)
        self.layers = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Dropout(0.1), last)

    def forward(self, numeric):
        if self.training:
            time.sleep(0.02)
        return self.layers(numeric)
"""
MakeHome = Callable[[str], Loopline]


@pytest.fixture(scope="session")
def make_home(tmp_path_factory: pytest.TempPathFactory, api: str, empty_store: Path, empty_prefect: Path) -> MakeHome:
    """A function that makes a workspace with one project of the given name."""

    def make(name: str, spec: str = SPEC) -> Loopline:
        home = Loopline(tmp_path_factory.mktemp(name) / "home", {"PREFECT_API_URL": api})
        home.begin(empty_store, empty_prefect)
        home.project(name, spec, {"slow.py": SLOW})
        return home

    return make


@pytest.fixture(scope="session")
def whole(make_whole: Callable[[str, str], Loopline]) -> Loopline:
    """The run that nobody interrupts: what all others must end like."""
    return make_whole("whole", SPEC)


@pytest.fixture(scope="session")
def whole_on_two_ranks(make_whole: Callable[[str, str], Loopline]) -> Loopline:
    """The same, trained by two ranks."""
    return make_whole("whole-on-two-ranks", TWO_RANKS)


@pytest.fixture(scope="session")
def make_whole(once: MakeOnce, api: str, empty_store: Path, empty_prefect: Path) -> Callable[[str, str], Loopline]:
    """A function that gives a workspace in which the project `whole` was run once, to read from."""

    def make(name: str, spec: str) -> Loopline:
        def run(folder: Path) -> None:
            home = Loopline(folder / "home", {"PREFECT_API_URL": api})
            home.begin(empty_store, empty_prefect)
            home.project("whole", spec, {"slow.py": SLOW})
            home("run", "whole").ok()

        return Loopline(once(name, run) / "home", {"PREFECT_API_URL": api})

    return make
