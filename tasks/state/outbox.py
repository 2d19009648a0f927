"""The outbox: a write-ahead log of what MLflow will receive, so that no run is lost while the tracking store is away.

Each line is a row of the state database. `tasks/mlflow/delivery.py` delivers the lines of a loop to MLflow, now or when
the store is back; each line may be delivered twice without harm. The loop names its runs (`loop`, `trial-3`): MLflow's
own ids come later. The page of a loop is made of the same lines, and of those of `PAGE_ONLY`, which MLflow never gets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import exists, func, select

from tasks.host import database
from tasks.host.tables import deliveries, loops, outbox

if TYPE_CHECKING:
    from tasks.host.leases import Lease

LOOP_RUN = "loop"
SPEC_FILE = "spec.json"
"""The artifact of a loop's run with its whole spec, defaults included."""
LOG, STOP = "log", "stop"
PAGE_ONLY = (LOG, STOP)
"""The operations that MLflow does not get: what a loop reports, and a person's request to stop it."""


class Delivered(NamedTuple):
    """What MLflow has of a loop: the number of the last line, and MLflow's ids of the runs by our names."""

    number: int
    runs: dict[str, str]


class Outbox:
    """Appends one line for each operation; safe to use from several threads.

    Args:
        state: The project's folder under `.loopline/projects/`; None for work that is not tracked.
        loop_id: The loop.
        lease: The lease by which this process runs the loop: whoever lost it raises LeaseLostError and appends nothing.
    """

    def __init__(self, state: Path | None, loop_id: str, lease: Lease | None = None) -> None:
        self._state = state
        self._loop_id = loop_id
        self._lease = lease

    def start_run(self, run: str, name: str, tags: Mapping[str, str], parent: str | None = None) -> None:
        """Start a run, or continue it after a kill."""
        self._write({"op": "run", "run": run, "name": name, "tags": dict(tags), "parent": parent, "at_ms": _now_ms()})

    def params(self, run: str, params: Mapping[str, Any]) -> None:
        """Log parameters of a run, each only once."""
        self._write({"op": "params", "run": run, "params": {key: str(value) for key, value in params.items()}})

    def metrics(
        self,
        run: str,
        values: Mapping[str, float],
        step: int = 0,
        *,
        at: float | None = None,
        measured_on: str = "",
    ) -> None:
        """Log metrics of a run; values that are not finite are left out.

        Args:
            run: The run.
            values: The metrics by name.
            step: The epoch; 0 for values of the whole run.
            at: When they were measured, in Unix seconds; default: now. The same values of the same time count once.
            measured_on: The context of the run's dataset on which the values of the run's model were measured.
        """
        finite = {key: float(value) for key, value in values.items() if abs(float(value)) < float("inf")}
        at_ms = _now_ms() if at is None else round(at * 1000)
        line = {"op": "metrics", "run": run, "metrics": finite, "step": step, "at_ms": at_ms}
        self._write({**line, "measured_on": measured_on} if measured_on else line)

    def tags(self, run: str, tags: Mapping[str, Any]) -> None:
        """Set tags of a run."""
        self._write({"op": "tags", "run": run, "tags": {key: str(value) for key, value in tags.items()}})

    def artifact(self, run: str, path: Path, folder: str = "") -> None:
        """Log a file of a run; until it is delivered it must stay in its place, or be at the object store."""
        if self._state is not None and path.is_relative_to(self._state.parents[2]):
            path = path.relative_to(self._state.parents[2])  # another machine may deliver it
        self._write({"op": "artifact", "run": run, "path": str(path), "folder": folder})

    def text(self, run: str, name: str, text: str) -> None:
        """Log a text as a file of a run."""
        self._write({"op": "text", "run": run, "name": name, "text": text})

    def note(self, run: str, text: str) -> None:
        """Set a run's description, in Markdown; a link to `artifact:NAME` leads to the run's own file."""
        self._write({"op": "note", "run": run, "text": text})

    def model(self, run: str, model_id: str) -> None:
        """Name the logged model that a run has made; the metrics on its datasets are linked to it."""
        self._write({"op": "model", "run": run, "model_id": model_id})

    def dataset(self, run: str, dataset: Mapping[str, Any], context: str) -> None:
        """Log a dataset that the run read, with its use: name, digest, source, schema, profile."""
        self._write({"op": "dataset", "run": run, "dataset": dict(dataset), "context": context})

    def end_run(self, run: str, status: str, ended: float | None = None) -> None:
        """End a run with a status: FINISHED, FAILED or KILLED; `ended` is its end in Unix seconds, default: now."""
        at_ms = _now_ms() if ended is None else round(ended * 1000)
        self._write({"op": "end", "run": run, "status": status, "at_ms": at_ms})

    def log(self, step: str, state: str, text: str = "", count: int = 0, total: int = 0) -> None:
        """Record for the loop's page what `Reporter` gets; of a note, `step` is empty and `state` is `note`."""
        line = {"op": LOG, "run": LOOP_RUN, "step": step, "state": state, "text": text, "at_ms": _now_ms()}
        self._write({**line, "count": count, "total": total})

    def request_stop(self, person: str, *, is_signal: bool) -> None:
        """Record that a person wants the loop to stop; `is_signal`: the loop's own process does it, not Prefect."""
        self._write({"op": STOP, "run": LOOP_RUN, "person": person, "is_signal": is_signal, "at_ms": _now_ms()})

    def last_number(self) -> int:
        """Return the number of the last line; 0 for none."""
        if self._state is None:
            return 0
        mine = (outbox.c.project == self._state.name, outbox.c.loop_id == self._loop_id)
        with database.reading(self._state.parents[1]) as connection:
            return connection.scalar(select(func.max(outbox.c.number)).where(*mine)) or 0

    def open_runs(self) -> list[str]:
        """Return runs that were started and not ended, in the order of their start."""
        running: dict[str, None] = {}
        for line in self.lines().values():
            if line["op"] == "run":
                running[line["run"]] = None
            elif line["op"] == "end":
                running.pop(line["run"], None)
        return list(running)

    def points(self, run: str) -> dict[tuple[str, int], float]:
        """Return the last value of each metric of a run at each step."""
        lines = [line for line in self.lines().values() if line["op"] == "metrics" and line["run"] == run]
        return {(name, line["step"]): value for line in lines for name, value in line["metrics"].items()}

    def lines(self, after: int = 0, limit: int | None = None) -> dict[int, dict[str, Any]]:
        """Return the lines with a higher number, by their numbers, in the order in which they were written.

        Args:
            after: The number.
            limit: The most lines to return, the first of them; default: all.
        """
        if self._state is None:
            return {}
        same = (outbox.c.project == self._state.name, outbox.c.loop_id == self._loop_id)  # the index begins with it
        mine = (*same, outbox.c.number > after)
        rows = select(outbox.c.number, outbox.c.content).where(*mine).order_by(outbox.c.number).limit(limit)
        with database.reading(self._state.parents[1]) as connection:
            return {row.number: row.content for row in connection.execute(rows)}

    def _write(self, line: dict[str, Any]) -> None:
        if self._state is None:
            return
        row = {"project": self._state.name, "loop_id": self._loop_id, "content": line}
        with database.writing(self._state.parents[1], durable=False) as connection:
            if self._lease:
                self._lease.check(connection)
            connection.execute(outbox.insert(), row)


def delivered(state: Path, loop_id: str) -> Delivered:
    """Return what MLflow has of a loop."""
    with database.reading(state.parents[1]) as connection:
        row = connection.execute(select(deliveries).where(deliveries.c.loop_id == loop_id)).first()
    return Delivered(row.number, row.runs) if row else Delivered(0, {})


def set_delivered(state: Path, loop_id: str, delivery: Delivered, lease: Lease | None = None) -> None:
    """Save what MLflow has of a loop.

    Args:
        state: The project's folder under `.loopline/projects/`.
        loop_id: The loop.
        delivery: What MLflow has.
        lease: The lease by which this process delivers; without one it is alone on its machine.

    Raises:
        LeaseLostError: Another process delivers now, and delivers the same lines once more.
        StoreError: The database cannot be written.
    """
    with database.writing(state.parents[1]) as connection:
        if lease:
            lease.check(connection)
        row = {
            "project": state.name,
            "loop_id": loop_id,
            "at": time.time(),
            "number": delivery.number,
            "runs": delivery.runs,
        }
        database.upsert(connection, deliveries, row)


def undelivered(state: Path) -> list[str]:
    """Return the project's loops with lines that MLflow lacks, sorted."""
    last = select(outbox.c.loop_id, func.max(outbox.c.number).label("number")).where(outbox.c.project == state.name)
    written = last.group_by(outbox.c.loop_id).subquery()
    delivered_number = func.coalesce(deliveries.c.number, 0)
    owed = select(written.c.loop_id).outerjoin(deliveries, deliveries.c.loop_id == written.c.loop_id)
    with database.reading(state.parents[1]) as connection:
        return sorted(connection.scalars(owed.where(written.c.number > delivered_number)))


class WaitingLoop(NamedTuple):
    """An ended loop with lines that MLflow lacks: its project, and when it ended (Unix time)."""

    project: str
    ended: float


def waiting_loops(workspace_state: Path) -> dict[str, WaitingLoop]:
    """Return the ended loops of all projects with lines that MLflow lacks; a loop that runs delivers its own.

    Args:
        workspace_state: The workspace's state folder, `.loopline`.

    Cost: one query, which looks up two rows of each loop.
    """
    mine = (outbox.c.project == loops.c.project, outbox.c.loop_id == loops.c.loop_id)
    lacks = exists().where(*mine, outbox.c.number > func.coalesce(deliveries.c.number, 0))
    ended = func.coalesce(loops.c.ended, loops.c.began).label("ended")
    rows = select(loops.c.loop_id, loops.c.project, ended).where(loops.c.state != "running", lacks)
    rows = rows.outerjoin(deliveries, deliveries.c.loop_id == loops.c.loop_id)
    with database.reading(workspace_state) as connection:
        return {row.loop_id: WaitingLoop(row.project, row.ended) for row in connection.execute(rows.order_by(ended))}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
