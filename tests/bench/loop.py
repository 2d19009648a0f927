"""Whole loops through the command line, against the bare script.

Every measured loop has a workspace of its own with the packages already in its cache, so nothing is downloaded. Both
sides train on one thread and never stop early: the same compute always, and no threads that spin on a busy machine.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tasks.tools import sources
from tests.bench.bare_flights import SETTINGS
from tests.bench.measure import Measured, end_servers, measure, num_servers
from tests.loaded import load

ROOT = Path(__file__).parents[2]
LOOPLINE = str(Path(sys.executable).parent / "loopline")
FLIGHTS = ROOT / "projects" / "flights"
SAME_COMPUTE = ("train.threads=1", f"train.patience={SETTINGS['train.epochs']}", "search.pruner=none")
SEARCH = (
    "train.threads=1", "train.epochs=1", "judge.resamples=100", "search.trials=8", "search.epochs=2",
    "search.sample=1.0", "search.pruner=none",
)  # fmt: skip
QUIET = {
    "DO_NOT_TRACK": "true",
    "GX_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
}
OURS = ("PREFECT_", "MLFLOW_", "LOOPLINE_", "DVC_", "OPTUNA_")


@dataclass(frozen=True)
class Loops:
    """Bare and ours, with every store new, and with stores and server there already."""

    bare_new: Measured
    bare_again: Measured
    embedded: Measured
    server_up: Measured
    up_to_date_wall_s: float
    up_to_date_servers: int


def spec_differences() -> list[str]:
    """Where the bare script's settings are no longer those of projects/flights/project.yaml."""
    spec = YAML(typ="safe").load((FLIGHTS / "project.yaml").read_text())
    found = []
    for path, value in SETTINGS.items():
        part: Any = spec
        for key in path.split("."):
            part = part.get(key) if isinstance(part, dict) else None
        if part != value:
            found.append(f"{path}: the spec says {part!r}, the bare script {value!r}")
    return found


def loops(place: Path) -> Loops:
    """Bare and embedded with new stores, then both once more with what a first run leaves behind."""
    packages = _packages()
    bare_new = _bare(packages, place / "bare")
    first = _workspace(packages, place / "embedded")
    embedded = _run(first, "flights", SAME_COMPUTE)
    end_servers()
    up_to_date = [_run(first, "flights", SAME_COMPUTE, memory=False).wall_s for _ in range(5)]
    servers = num_servers()
    bare_again = _bare(packages, place / "bare")
    second = _workspace(packages, place / "server")
    _run(second, "penguins")
    server_up = _run(second, "flights", SAME_COMPUTE)
    end_servers()
    return Loops(bare_new, bare_again, embedded, server_up, statistics.median(up_to_date), servers)


def help_wall_s() -> float:
    """Median seconds of `loopline --help`."""
    return statistics.median(measure([LOOPLINE, "--help"], _env(), ROOT, memory=False).wall_s for _ in range(9))


def search_wall_s(place: Path, workers: int) -> float:
    """Seconds that a search of eight trials takes with so many workers, one thread each."""
    workspace = _workspace(_packages(), place / f"search-{workers}")
    told = _run(workspace, "flights", (*SEARCH, f"search.workers={workers}"), memory=False).output
    end_servers()
    found = re.search(r"search\s+done ([\d.]+) s", told)
    if found is None:
        raise ValueError(f"the run does not say how long its search took:\n{told}")
    return float(found[1])


def _packages() -> Path:
    """The packages that flights needs, kept in the clone's own cache."""
    cache = ROOT / ".loopline" / "cache" / "sources"
    module = load(FLIGHTS / "source.py")
    for reference in (module.FLIGHTS, module.WEATHER, module.PLANES):
        sources.fetch(reference, cache)
    return cache


def _workspace(packages: Path, folder: Path) -> Path:
    """A fresh workspace with the shipped projects, without their data, and the packages."""
    shutil.copytree(ROOT / "projects", folder / "projects", ignore=shutil.ignore_patterns("data", "__pycache__"))
    shutil.copytree(packages, folder / ".loopline" / "cache" / "sources")
    return folder


def _run(workspace: Path, project: str, overrides: tuple[str, ...] = (), memory: bool = True) -> Measured:
    command = [LOOPLINE, "run", project, *(word for override in overrides for word in ("-s", override))]
    return measure(command, _env() | {"LOOPLINE_HOME": str(workspace)}, workspace, memory)


def _bare(packages: Path, out: Path) -> Measured:
    options = ["--packages", str(packages), "--out", str(out), "--threads", "1", "--whole"]
    return measure([sys.executable, "-m", "tests.bench.bare_flights", *options], _env(), ROOT)


def _env() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(OURS)} | QUIET
