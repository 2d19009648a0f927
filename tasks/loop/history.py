"""The past of a project as the policy sees it: its loops, what was decided, what runs now."""

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
"""Held by a project's loop while it runs."""
OVER = ("finished", "rejected")
"""States of a loop that is not gone on with: the next one, on other data perhaps, has a new id."""


def past(project: Project, spec: Spec, now: float | None = None) -> ProjectHistory:
    """Return what the policy needs. From files alone; 10,000 loops and as many decisions take 0.2 s.

    Args:
        project: Where.
        spec: Its spec; labels are counted only where `retrain.min_new_labels` asks for some.
        now: Unix time; default: the wall's.
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
    """Append the end of a loop. A loop that was killed and resumed has two ends: the last one counts."""
    journal.append(state / LOOPS, loop.model_dump(mode="json"))


def read_loops(state: Path) -> list[PastLoop]:
    """The project's loops in the order in which they ended."""
    loops: dict[str, PastLoop] = {}
    for loop in _understood(journal.read(state / LOOPS)[0]):
        loops.pop(loop.loop_id, None)
        loops[loop.loop_id] = loop
    return list(loops.values())


def newest_loops(state: Path) -> list[PastLoop]:
    """Return the last loops, newest first, without reading all; of a resumed loop its last end."""
    loops: dict[str, PastLoop] = {}
    for loop in _understood(journal.newest(state / LOOPS)):
        loops.setdefault(loop.loop_id, loop)
    return list(loops.values())


def _understood(lines: Iterable[dict[str, Any]]) -> Iterator[PastLoop]:
    for line in lines:
        with contextlib.suppress(ValidationError):  # of a later Loopline: passed over like a torn line
            yield PastLoop.model_validate(line)


def read_loop_state(state: Path) -> dict[str, Any] | None:
    """Read `loop.json`, the state of the project's last loop: loop_id, state, process, intent, folder."""
    return read_json(state / "loop.json") or None


def running(state: Path) -> str | None:
    """Id of the loop that runs now; one whose process is gone does not."""
    loop_state = read_loop_state(state)
    return str(loop_state["loop_id"]) if loop_state and is_running(state, loop_state) else None


def is_running(state: Path, loop_state: dict[str, Any]) -> bool:
    """Whether the loop of a project's book runs: its process lives, or elsewhere holds the project's lock."""
    return loop_state["state"] == "running" and processes.is_alive(loop_state["process"], state / LOOP_LOCK)


def _new_labels(state: Path, loops: list[PastLoop]) -> int:
    from tasks.state.ingest_segments import move
    from tasks.state.predictions import new_labels

    with contextlib.suppress(StoreError):  # busy or full: what waits counts the next time
        move(state)
    trained = [loop.began for loop in loops if loop.outcome not in ("failed", "rejected")]
    return new_labels(state, trained[-1] if trained else 0.0)


def _decided(state: Path, since: float) -> dict[str, Any]:
    """Return the decided signals, and the one that waits for approval unless its question is too old."""
    last = {line["signal"]["id"]: line for line in journal.read(state / decisions.FILE)[0] if "signal" in line}
    open_approval = [name for name, line in last.items() if line["action"] == "ask" and line["at"] > since]
    settled = frozenset(name for name, line in last.items() if not _weighed_again(line))
    return {"signals": settled, "open_approval": open_approval[-1] if open_approval else None}


def _weighed_again(line: dict[str, Any]) -> bool:
    return line["action"] == "wait" and line["until"] is not None
