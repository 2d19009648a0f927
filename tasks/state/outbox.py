"""The outbox: a write-ahead log of what MLflow will receive, so that no run is lost while the tracking store is away.

There is one file of JSON lines per loop. `tasks/mlflow/delivery.py` delivers it to MLflow, now or when the store is
back; each line may be delivered twice without harm. The loop names its runs (`loop`, `trial-3`): MLflow's own ids come
later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.state import journal

LOOP_RUN = "loop"


class Outbox:
    """Appends one line for each operation; safe to use from several threads of one process.

    Args:
        path: The file; None for work that is not tracked.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()

    def start_run(self, run: str, name: str, tags: Mapping[str, str], parent: str | None = None) -> None:
        """Start a run, or continue it after a kill."""
        self._write({"op": "run", "run": run, "name": name, "tags": dict(tags), "parent": parent, "at_ms": _now_ms()})

    def params(self, run: str, params: Mapping[str, Any]) -> None:
        """Log parameters of a run, each only once."""
        self._write({"op": "params", "run": run, "params": {key: str(value) for key, value in params.items()}})

    def metrics(self, run: str, values: Mapping[str, float], step: int = 0) -> None:
        """Log metrics of a run at a step; values that are not finite are left out."""
        finite = {key: float(value) for key, value in values.items() if abs(float(value)) < float("inf")}
        self._write({"op": "metrics", "run": run, "metrics": finite, "step": step, "at_ms": _now_ms()})

    def tags(self, run: str, tags: Mapping[str, Any]) -> None:
        """Set tags of a run."""
        self._write({"op": "tags", "run": run, "tags": {key: str(value) for key, value in tags.items()}})

    def artifact(self, run: str, path: Path, folder: str = "") -> None:
        """Log a file of a run; it must stay in its place until it is delivered."""
        self._write({"op": "artifact", "run": run, "path": str(path), "folder": folder})

    def dataset(self, run: str, dataset: Mapping[str, Any], context: str) -> None:
        """Log a dataset that the run read: name, digest, source, schema, profile."""
        self._write({"op": "dataset", "run": run, "dataset": dict(dataset), "context": context})

    def end_run(self, run: str, status: str) -> None:
        """End a run with a status: FINISHED, FAILED or KILLED."""
        self._write({"op": "end", "run": run, "status": status, "at_ms": _now_ms()})

    def open_runs(self) -> list[str]:
        """Return runs that were started and not ended, in the order of their start."""
        running: dict[str, None] = {}
        for line in journal.read(self.path)[0] if self.path else ():
            if line["op"] == "run":
                running[line["run"]] = None
            elif line["op"] == "end":
                running.pop(line["run"], None)
        return list(running)

    def _write(self, line: dict[str, Any]) -> None:
        if self.path is None:
            return
        with self._lock:
            journal.append(self.path, line, synced=False)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
