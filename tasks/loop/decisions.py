"""The record of all decisions on signals, to retrain or not, with the reasons: `decisions.jsonl`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from models.triggers.signal import Decision
from tasks.state import journal

FILE = "decisions.jsonl"


def record(state: Path, decision: Decision) -> None:
    """Append a decision; it is on the disk when this returns.

    Args:
        state: The project's folder under `.loopline/projects/`.
        decision: The policy's or a person's decision about a signal.

    Raises:
        StoreError: The disk is full or the folder is not writable.
    """
    journal.append(state / FILE, decision.model_dump(mode="json"))


def read(state: Path, last: int | None = None) -> list[Decision]:
    """Return the decisions, oldest first; with `last`, only this many of the newest."""
    lines, _ = journal.read(state / FILE)
    return list(_understood(lines if last is None else lines[-last:]))


def newest(state: Path) -> list[Decision]:
    """Return the last decisions, newest first, without reading the whole file."""
    return list(_understood(journal.newest(state / FILE)))


def _understood(lines: Iterable[dict[str, Any]]) -> Iterator[Decision]:
    for line in lines:
        with contextlib.suppress(ValidationError):  # lines of a later Loopline are ignored like torn lines
            yield Decision.model_validate(line)


def of_flow_run(state: Path, flow_run: str) -> Decision | None:
    """Return the last decision of a run of the `retrain` flow, or None; a repeated run does not decide again."""
    lines, _ = journal.read(state / FILE)
    mine = [line for line in lines if line.get("flow_run") == flow_run]
    return Decision.model_validate(mine[-1]) if mine else None
