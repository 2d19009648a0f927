"""The history of a project as the policy sees it: finished loops, decisions, the running loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from models.errors import StoreError
from models.files import read_json
from models.project_spec.blocks import Spec
from models.triggers.signal import PastLoop, ProjectHistory
from tasks.host import processes
from tasks.host.workspace import Project
from tasks.loop import decisions
from tasks.state import journal

LOOPS = "loops.jsonl"
LOOP_LOCK = "loop.lock"
"""The lock that a project's loop holds while it runs."""
OVER = ("finished", "rejected")
"""States of a loop that is never continued: the next loop, perhaps on other data, has a new id."""


def past(project: Project, spec: Spec, now: float | None = None) -> ProjectHistory:
    """Return the history that the policy needs, from files alone; 10,000 loops and as many decisions take 0.2 s.

    Args:
        project: The project.
        spec: The project's spec; labels are counted only if `retrain.min_new_labels` is set.
        now: Unix time; default: the system clock.
    """
    state = project.state(spec.name)
    loops = read_loops(state)
    return ProjectHistory(
        loops=loops,
        new_labels=_new_labels(state, loops) if spec.retrain.min_new_labels else 0,
        running=running(state),
        **_decided(state, (time.time() if now is None else now) - spec.retrain.ask_timeout_s),
    )


def record_loop(state: Path, loop: PastLoop) -> None:
    """Append the end of a loop; a loop that was killed and continued has two entries, of which the last counts."""
    journal.append(state / LOOPS, loop.model_dump(mode="json"))


def read_loops(state: Path) -> list[PastLoop]:
    """Return the project's loops in the order in which they ended."""
    loops: dict[str, PastLoop] = {}
    for loop in _understood(journal.read(state / LOOPS)[0]):
        loops.pop(loop.loop_id, None)
        loops[loop.loop_id] = loop
    return list(loops.values())


def newest_loops(state: Path) -> list[PastLoop]:
    """Return the last loops, newest first, without reading the whole file; a continued loop has its last end."""
    loops: dict[str, PastLoop] = {}
    for loop in _understood(journal.newest(state / LOOPS)):
        loops.setdefault(loop.loop_id, loop)
    return list(loops.values())


def _understood(lines: Iterable[dict[str, Any]]) -> Iterator[PastLoop]:
    for line in lines:
        with contextlib.suppress(ValidationError):  # lines of a later Loopline are ignored like torn lines
            yield PastLoop.model_validate(line)


def read_loop_state(state: Path) -> dict[str, Any] | None:
    """Return `loop.json`, the state of the project's last loop: loop_id, state, process, intent, folder."""
    return read_json(state / "loop.json") or None


def running(state: Path) -> str | None:
    """Return the id of the running loop, or None; a loop whose process is gone does not run."""
    loop_state = read_loop_state(state)
    return str(loop_state["loop_id"]) if loop_state and is_running(state, loop_state) else None


def is_running(state: Path, loop_state: dict[str, Any]) -> bool:
    """Return whether this loop runs: its process is alive, or a process on another host holds the project's lock."""
    return loop_state["state"] == "running" and processes.is_alive(loop_state["process"], state / LOOP_LOCK)


def _new_labels(state: Path, loops: list[PastLoop]) -> int:
    from tasks.state.ingest_segments import move
    from tasks.state.predictions import new_labels

    with contextlib.suppress(StoreError):  # lock busy or disk full: waiting labels count the next time
        move(state)
    trained = [loop.began for loop in loops if loop.outcome not in ("failed", "rejected")]
    return new_labels(state, trained[-1] if trained else 0.0)


def _decided(state: Path, since: float) -> dict[str, Any]:
    """Return signals with a final decision, and the signal that waits for a person, unless the question timed out."""
    last = {line["signal"]["id"]: line for line in journal.read(state / decisions.FILE)[0] if "signal" in line}
    open_approval = [name for name, line in last.items() if line["action"] == "ask" and line["at"] > since]
    settled = frozenset(name for name, line in last.items() if not _weighed_again(line))
    return {"signals": settled, "open_approval": open_approval[-1] if open_approval else None}


def _weighed_again(line: dict[str, Any]) -> bool:
    return line["action"] == "wait" and line["until"] is not None
