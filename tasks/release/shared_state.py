"""Shared release state of the controller and its workers: files in `serving/`, and eight shared bytes.

release.json      what answers, written by the controller alone
next.json         what shall answer next: workers load it and say so
workers/          what each worker holds, what failed it, and how its versions did
nudge             there when the controller is to look at once
switch            the generation that answers, mapped into every worker

A swap is two steps: every worker that lives loads `next.json`; then the release is written and the switch is set. A
worker reads the switch at each request, so that after the one write of it no worker picks by the old release.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from models.files import read_json, write_json
from models.serving.releases import Release, release_of
from tasks.host import processes

_SWITCH_BYTES = 8


class VersionOutcomes(BaseModel):
    """Outcomes of a version: `answers`, of which `failed` in the model and `slow` took longer than the spec allows."""

    answers: int = 0
    failed: int = 0
    slow: int = 0

    def plus(self, other: VersionOutcomes) -> VersionOutcomes:
        """Both together."""
        return VersionOutcomes(
            answers=self.answers + other.answers, failed=self.failed + other.failed, slow=self.slow + other.slow
        )

    def minus(self, other: VersionOutcomes) -> VersionOutcomes:
        """The difference to earlier outcomes."""
        return VersionOutcomes(
            answers=self.answers - other.answers, failed=self.failed - other.failed, slow=self.slow - other.slow
        )


class WorkerReport(BaseModel):
    """What a worker has loaded. `failed`: version -> why it could not be loaded."""

    process: dict[str, Any]
    loaded: list[str] = Field(default_factory=list)
    failed: dict[str, str] = Field(default_factory=dict)
    tallies: dict[str, VersionOutcomes] = Field(default_factory=dict)


class GenerationSwitch:
    """The generation that answers, in memory that every process of the project's servers shares."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(file).st_size < _SWITCH_BYTES:
                os.ftruncate(file, _SWITCH_BYTES)
            self._value = memoryview(mmap.mmap(file, _SWITCH_BYTES)).cast("Q")
        finally:
            os.close(file)

    @property
    def generation(self) -> int:
        """The one that answers."""
        return self._value[0]

    def turn(self, generation: int) -> None:
        """From now on that one answers, everywhere."""
        self._value[0] = generation


class SharedReleaseState:
    """The meeting place in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.release_path, self.next_path = folder / "release.json", folder / "next.json"
        self.switch = GenerationSwitch(folder / "switch")
        self._workers, self._nudge_path = folder / "workers", folder / "nudge"

    def release(self) -> Release | None:
        """The release that answers now."""
        return release_of(read_json(self.release_path))

    def next(self) -> Release | None:
        """The release that is being prepared; None while no swap is in progress."""
        return release_of(read_json(self.next_path))

    def prepare(self, release: Release) -> None:
        """Have every worker load it."""
        write_json(self.next_path, release.model_dump())

    def give_up(self) -> None:
        """It shall not answer after all."""
        self.next_path.unlink(missing_ok=True)

    def publish(self, release: Release) -> None:
        """It answers from here on."""
        write_json(self.release_path, release.model_dump())
        self.switch.turn(release.generation)
        self.give_up()

    def nudge(self) -> None:
        """Have the controller look at once."""
        self._nudge_path.touch()

    def was_nudged(self) -> bool:
        """Whether a poll was requested since the last call."""
        with contextlib.suppress(FileNotFoundError):
            self._nudge_path.unlink()
            return True
        return False

    def report(self, report: WorkerReport) -> None:
        """Publish a worker's report. It is not synced to disk: after a power cut it has no use."""
        self._workers.mkdir(parents=True, exist_ok=True)
        path = self._workers / f"{report.process['pid']}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(report.model_dump_json())
        temporary.replace(path)

    def reports(self) -> list[WorkerReport]:
        """Return the reports of all living workers of this machine; reports of dead ones are deleted."""
        reports = []
        for path in self._workers.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                report = WorkerReport.model_validate(json.loads(path.read_bytes()))
                if processes.is_alive_here(report.process):
                    reports.append(report)
                else:
                    path.unlink(missing_ok=True)
        return reports

    def forget(self, pid: int) -> None:
        """A worker ends."""
        (self._workers / f"{pid}.json").unlink(missing_ok=True)
