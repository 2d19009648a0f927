"""Loops of the penguins for tests on clusters, with a place of the cluster in their workspace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.training.job import EpochReport

ROOT = Path(__file__).parents[1]


def once(epoch: int, act: Callable[[], Any]) -> Callable[[EpochReport], bool]:
    """An `on_epoch` that acts at one epoch."""
    done: list[Any] = []

    def on_epoch(report: EpochReport) -> bool:
        if report.epoch >= epoch and not done:
            done.append(act())
        return True

    return on_epoch


def run_penguins(home: Path, place: dict[str, Any], *overrides: str) -> subprocess.Popen[bytes]:
    """Run the loop of the penguins in a workspace of its own whose place `cluster` is `place`; gives the process."""
    shutil.copytree(
        ROOT / "projects" / "penguins", home / "projects" / "penguins", ignore=shutil.ignore_patterns("data")
    )
    (home / "places.yaml").write_text(json.dumps({"cluster": place}))
    settings = [
        word for text in ("search.trials=1", "train.epochs=600", "train.threads=1", *overrides) for word in ("-s", text)
    ]
    return subprocess.Popen(
        [Path(sys.executable).with_name("loopline"), "run", "penguins", *settings],
        env={**os.environ, "LOOPLINE_HOME": str(home)},
    )


def trained(home: Path) -> dict[str, Any]:
    """The result of the only training in a workspace."""
    (path,) = (home / ".loopline/projects/penguins/work/train").glob("*/result.json")
    result: dict[str, Any] = json.loads(path.read_text())
    return result
