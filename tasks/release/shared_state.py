"""Shared release state of the controller and its workers: files in `serving/`, and eight shared bytes.

release.json      the current release, written by the controller alone
next.json         the next release: workers load its versions and report this
workers/          a report of each worker: its loaded versions, its failures, the outcomes of its versions
nudge             exists when the controller should look at once
switch            the current generation, mapped into every worker's memory

A swap has two steps: every live worker loads `next.json`; then the controller writes the release and sets the switch. A
worker reads the switch at each request, so after this single write no worker picks by the old release.
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
    """Outcomes of a version: answers, of which `failed` in the model itself and `slow` took over the spec's latency."""

    answers: int = 0
    failed: int = 0
    slow: int = 0

    def plus(self, second: VersionOutcomes) -> VersionOutcomes:
        """Return the sum of both."""
        return VersionOutcomes(
            answers=self.answers + second.answers, failed=self.failed + second.failed, slow=self.slow + second.slow
        )

    def minus(self, earlier: VersionOutcomes) -> VersionOutcomes:
        """Return the outcomes since `earlier`."""
        return VersionOutcomes(
            answers=self.answers - earlier.answers, failed=self.failed - earlier.failed, slow=self.slow - earlier.slow
        )


class WorkerReport(BaseModel):
    """A worker's report. `failed`: version -> why it could not be loaded."""

    process: dict[str, Any]
    loaded: list[str] = Field(default_factory=list)
    failed: dict[str, str] = Field(default_factory=dict)
    tallies: dict[str, VersionOutcomes] = Field(default_factory=dict)


class SharedNumber:
    """A whole number >= 0, in memory that all processes with the same file share; 0 at first."""

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
    def value(self) -> int:
        """The number."""
        return self._value[0]

    def set(self, value: int) -> None:
        """Change the number in all processes."""
        self._value[0] = value


class SharedReleaseState:
    """The shared release state in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.release_path, self.next_path = folder / "release.json", folder / "next.json"
        self.switch = SharedNumber(folder / "switch")
        self._workers, self._nudge_path = folder / "workers", folder / "nudge"

    def release(self) -> Release | None:
        """Return the current release; None if there is none."""
        return release_of(read_json(self.release_path))

    def next(self) -> Release | None:
        """Return the next release; None while no swap is under way."""
        return release_of(read_json(self.next_path))

    def prepare(self, release: Release) -> None:
        """Tell every worker to load the versions of a release."""
        write_json(self.next_path, release.model_dump())

    def give_up(self) -> None:
        """Cancel the next release."""
        self.next_path.unlink(missing_ok=True)

    def publish(self, release: Release) -> None:
        """Make a release the current one in all workers."""
        write_json(self.release_path, release.model_dump())
        self.switch.set(release.generation)
        self.give_up()

    def nudge(self) -> None:
        """Make the controller look at once."""
        self._nudge_path.touch()

    def was_nudged(self) -> bool:
        """Return whether there was a nudge since the last call."""
        with contextlib.suppress(FileNotFoundError):
            self._nudge_path.unlink()
            return True
        return False

    def report(self, report: WorkerReport) -> None:
        """Write a worker's report. It is not synced: after a crash of the machine it is of no use."""
        self._workers.mkdir(parents=True, exist_ok=True)
        path = self._workers / f"{report.process['pid']}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(report.model_dump_json())
        temporary.replace(path)

    def reports(self) -> list[WorkerReport]:
        """Return the reports of this machine's live workers; delete those of dead workers."""
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
        """Delete the report of a worker that ends."""
        (self._workers / f"{pid}.json").unlink(missing_ok=True)
