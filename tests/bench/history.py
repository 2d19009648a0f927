"""What 10,000 loops on record cost those who look: `status`, `plan` and the overview page, wall seconds.

The records, the registry's journal, the decisions and the ends of loops are written as loops leave them, an hour apart;
the first look after a loop ended finds them all new.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.pipeline.keys import key_of
from models.pipeline.records import StepRecord
from models.pipeline.steps import STEPS
from models.project_spec.reader import read_spec
from tasks.host import database, tables
from tasks.host.http_guard import token_path
from tasks.host.workspace import Workspace
from tasks.loop.step_cache import StepCache
from tasks.mlflow import embedded_store
from tests.bench.loop import LOOPLINE, ROOT
from tests.children import started

NUM_LOOPS = 10_000
HOUR_S = 3600.0
NUM_PROJECTS = 100
NAME = "penguins"


@dataclass(frozen=True)
class Looks:
    """Median wall seconds; `first` is the look after every record is new to whoever looks."""

    status_first_s: float
    status_s: float
    plan_s: float
    page_s: float
    status_of_many_s: float


def looks(place: Path, num_loops: int = NUM_LOOPS) -> Looks:
    """Make the history and measure."""
    workspace = Workspace(place / "history")
    make(workspace, num_loops)
    first = _wall_s(workspace, "status")
    return Looks(
        status_first_s=first,
        status_s=statistics.median(_wall_s(workspace, "status") for _ in range(5)),
        plan_s=statistics.median(_wall_s(workspace, "plan", NAME) for _ in range(5)),
        page_s=_page_s(workspace),
        status_of_many_s=_status_of_many_s(workspace),
    )


def _status_of_many_s(workspace: Workspace) -> float:
    """Add projects up to NUM_PROJECTS, with 30 loops each, and look at all."""
    source = workspace.root / "projects" / NAME
    for number in range(1, NUM_PROJECTS):
        name = f"{NAME}-{number:03d}"
        folder = workspace.root / "projects" / name
        shutil.copytree(source, folder)
        spec = folder / "project.yaml"
        spec.write_text(spec.read_text().replace(f"name: {NAME}\n", f"name: {name}\n"))
        make_past(workspace, name, [*range(30, 0, -1)])
    _wall_s(workspace, "status")
    return statistics.median(_wall_s(workspace, "status") for _ in range(5))


def make(workspace: Workspace, num_loops: int) -> None:
    """A project that was carried round the loop so often, once an hour until now."""
    shutil.copytree(ROOT / "projects" / NAME, workspace.root / "projects" / NAME, ignore=shutil.ignore_patterns("data"))
    workspace.make()
    ages = [num_loops - number for number in range(num_loops)]
    make_past(workspace, NAME, ages)
    _registry(workspace, ages)


def make_past(workspace: Workspace, name: str, ages: list[int]) -> None:
    """The records, decisions and ends of a project's loops, which ended so many hours ago."""
    project = workspace.project(name)
    step_cache = StepCache(project, read_spec(project.spec_path))
    done: dict[str, StepRecord] = {}
    for step in STEPS:
        asks_registry = {"champion", "reference", "equal_rows"} & {*step.external}
        parts = {f"input:{name}": "" for name in step.after} if asks_registry else step_cache.parts(step, done)
        made = StepRecord(
            step=step.name, key="KEY", parts=parts, digest="d", result=_result(step.name), loop_id="LOOP", finished=0.5
        )
        _records(workspace, name, made, ages)
        done[step.name] = made
    _history(workspace, name, ages)


def _result(step: str) -> dict[str, object]:
    reasons = ["Kept. " + "word " * 40]
    rows = {"train": 2, "validation": 1, "test": 1} if step == "prepare" else 4
    said = {"version": "1", "decision": "keep", "reasons": reasons, "weights_sha256": "x", "status": "valid"}
    return {**said, "rows": rows}


def _records(workspace: Workspace, name: str, made: StepRecord, ages: list[int]) -> None:
    rows = []
    for age in ages:
        facts = {"key": key_of({"age": age}), "loop_id": f"{name}-{age}", "finished": time.time() - HOUR_S * age}
        content = made.model_copy(update=facts).model_dump(mode="json")
        rows.append({"project": name, "step": made.step, "key": facts["key"], "content": content})
    with database.writing(workspace.state) as connection:
        connection.execute(tables.step_records.insert(), rows)


def _history(workspace: Workspace, name: str, ages: list[int]) -> None:
    loops, decisions = [], []
    for number, age in enumerate(ages, 1):
        at = time.time() - HOUR_S * age
        loop = {"loop_id": f"{name}-{age}", "began": at - 300, "ended": at, "outcome": "kept", "trigger": "decay"}
        loops.append({**loop, "project": name, "closed": number, "device_seconds": 1.0})
        signal = {"id": f"decay-{age}", "kind": "decay", "at": at, "reason": "it fell", "evidence": {}}
        made = {"at": at, "action": "retrain"}
        content = {**made, "signal": signal, "reasons": ["it fell"]}
        decisions.append({**made, "project": name, "signal": signal["id"], "content": content})
    with database.writing(workspace.state) as connection:
        connection.execute(tables.loops.insert(), loops)
        connection.execute(tables.decisions.insert(), decisions)


def _registry(workspace: Workspace, ages: list[int]) -> None:
    environ = {"MLFLOW_TRACKING_URI": f"sqlite:///{workspace.state / 'mlflow' / 'mlflow.db'}"}
    embedded_store.initialise(workspace, environ)
    moves = [
        {"number": number, "action": "promote", "before": "1", "after": "1", "at": 0.5, "by": "x", "reason": "y" * 400}
        for number in range(1, len(ages) + 1)
    ]
    with contextlib.closing(sqlite3.connect(workspace.state / "mlflow" / "mlflow.db")) as connection, connection:
        connection.execute("insert into registered_models (name, workspace) values (?, 'default')", (NAME,))
        connection.executemany(
            "insert into registered_model_tags (key, value, name, workspace) values (?, ?, ?, 'default')",
            [(f"loopline.journal.{move['number']:06d}", json.dumps(move), NAME) for move in moves],
        )


def _wall_s(workspace: Workspace, *command: str) -> float:
    began = time.perf_counter()
    environ = {**os.environ, "LOOPLINE_HOME": str(workspace.root)}
    subprocess.run([LOOPLINE, *command], env=environ, cwd=workspace.root, capture_output=True, check=True)
    return time.perf_counter() - began


def _page_s(workspace: Workspace) -> float:
    with _served(workspace) as address:
        token = token_path(workspace).read_text().strip()
        return statistics.median(_got_s(f"{address}/projects/{NAME}", token) for _ in range(5))


@contextlib.contextmanager
def _served(workspace: Workspace) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "tasks.dashboard", str(workspace.root), "--port", str(port)]
    with started(command, cwd=ROOT) as process:
        try:
            for _ in range(600):
                with contextlib.suppress(urllib.error.URLError, OSError):
                    _got_s(f"http://127.0.0.1:{port}/health")
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _got_s(address: str, token: str = "") -> float:
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    return time.perf_counter() - began
