"""Records of finished steps, the step cache: one small JSON file for each key.

A record counts only while each of its outputs exists with the recorded hash.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from models.errors import StoreError
from models.files import CLOCK_TICK_NS, Hashes, write_text
from models.frozen_model import FrozenModel
from models.pipeline.keys import Parts, key_of

FINISHED = re.compile(rb'^ "finished": ([-+.\deE]+)', re.MULTILINE)
TIMES_DIFFER_S = 2.0
"""File systems have coarse timestamps; some archives have steps of two seconds."""
REMEMBERED = 64
"""Number of newest records in the note; no page shows more."""


class StepRecord(FrozenModel):
    """The record of one finished step.

    `outputs` maps a path (relative to the workspace if it is inside) to its SHA-256. `digest` is a hash over them, on
    which later steps depend. `result` holds the step's findings for people and for later steps.
    """

    step: str
    key: str
    parts: Parts
    outputs: dict[str, str] = Field(default_factory=dict)
    digest: str
    result: dict[str, Any] = Field(default_factory=dict)
    loop_id: str
    finished: float = Field(description="Unix time, seconds.")
    seconds: float = 0.0


def digest_of(outputs: dict[str, str]) -> str:
    """Return one hash over the names and hashes of the outputs; only the last part of each path counts."""
    return key_of({Path(path).name: digest for path, digest in outputs.items()})


class StepRecords:
    """The records of one project, in `folder/<step>/<key>.json`."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        self._folder = folder
        self._workspace = workspace

    def find(self, step: str, key: str) -> StepRecord | None:
        """Return the record of a step and key, or None; `broken` checks whether its outputs still exist."""
        return self._read(self._folder / step / f"{key}.json")

    def latest(self, step: str) -> StepRecord | None:
        """Return the step's record that finished last, with any key."""
        return next(self.newest(step), None)

    def newest(self, step: str) -> Iterator[StepRecord]:
        """Yield the step's records, last finished first; each is read only when it is needed.

        Cost: with 10,000 records, the first 64 take a millisecond, except the first time, when 10,000 modification
        times are read (0.1 s); all of them take a second.
        """
        first = self._first(step)
        rest = (name for name in self._in_order(step) if name not in first) if len(first) == REMEMBERED else ()
        for name in itertools.chain(first, rest):
            record = self._read(self._folder / step / name)
            if record:
                yield record

    def alike(self, step: str, parts: Parts, but: str) -> StepRecord | None:
        """Return the step's newest record with the same parts except the part `but`, which it must have."""
        wanted = {name: value for name, value in parts.items() if name != but}
        same = (
            record
            for record in self.newest(step)
            if but in record.parts and {name: value for name, value in record.parts.items() if name != but} == wanted
        )
        return next(same, None)

    def save(self, record: StepRecord) -> None:
        """Save a record atomically; the step then counts as done."""
        write_text(self._folder / record.step / f"{record.key}.json", record.model_dump_json(indent=1) + "\n")

    def broken(self, record: StepRecord, hashes: Hashes) -> str | None:
        """Return why the record no longer counts (`output missing: ...`), or None if it counts."""
        for name, digest in record.outputs.items():
            path = self._workspace / name
            if not path.exists():
                return f"output missing: {name}"
            if hashes.of(path) != digest:
                return f"output changed: {name}"
        return None

    def path(self, name: str) -> Path:
        """Return the path of an output named in a record."""
        return self._workspace / name

    def name(self, path: Path) -> str:
        """Return a path's name in records: relative to the workspace if it is inside."""
        inside = path.is_relative_to(self._workspace)
        return path.relative_to(self._workspace).as_posix() if inside else str(path)

    def folder_of(self, step: str) -> Path:
        """Return the folder of a step's records."""
        return self._folder / step

    def all(self, steps: Iterable[str]) -> dict[str, StepRecord]:
        """Return the latest record of each step that has one."""
        return {step: record for step in steps if (record := self.latest(step))}

    def _first(self, step: str) -> dict[str, None]:
        """Return the names of the newest records from the note if the folder has not changed; else find and note them.

        If the folder changed within the current clock tick, it may change again unnoticed, so no note is written.
        """
        folder, note = self._folder / step, self._folder / f"{step}.newest"
        if not folder.is_dir():
            return {}
        changed = folder.stat().st_mtime_ns
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            known = json.loads(note.read_text())
            if known["changed"] == changed:
                return dict.fromkeys(known["names"])
        with contextlib.suppress(OSError):
            note.touch()  # gives the time of the file system's own clock
        names = list(itertools.islice(self._in_order(step), REMEMBERED))
        with contextlib.suppress(OSError, StoreError):  # without a note the next call is slower
            if note.stat().st_mtime_ns > changed + CLOCK_TICK_NS:
                write_text(note, json.dumps({"changed": changed, "names": names}))
        return dict.fromkeys(names)

    def _in_order(self, step: str) -> Iterator[str]:
        """Yield the names of the step's records, last finished first.

        A record is written after its step finished. So a file written before a record finished holds no later record.
        """
        waiting: list[tuple[float, str]] = []  # records read so far; the last finished is on top
        with os.scandir(self._folder / step) as entries:
            written = [(entry.stat().st_mtime, entry.name) for entry in entries if entry.name.endswith(".json")]
        for time, name in sorted(written, reverse=True):
            while waiting and -waiting[0][0] >= time + TIMES_DIFFER_S:
                yield heapq.heappop(waiting)[1]
            finished = _finished(self._folder / step / name)
            if finished is not None:
                heapq.heappush(waiting, (-finished, name))
        while waiting:
            yield heapq.heappop(waiting)[1]

    def _read(self, path: Path) -> StepRecord | None:
        try:
            return StepRecord.model_validate(json.loads(path.read_text()))
        except (OSError, ValueError, ValidationError):
            return None  # missing or truncated: the step counts as not done


def _finished(path: Path) -> float | None:
    """Return when the step of a record finished, without parsing the rest; JSON strings contain no line breaks."""
    with contextlib.suppress(OSError, ValueError):
        match = FINISHED.search(path.read_bytes())
        return float(match[1]) if match else None
    return None
