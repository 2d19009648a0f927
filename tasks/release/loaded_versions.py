"""The loaded versions of one worker, as the release plan has them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from models.errors import LooplineError, StoreError
from models.files import read_json
from models.inference.loaded_model import LoadedModel
from models.project_spec.serve import serve_rules_of
from models.serving.releases import Release
from tasks.host import processes
from tasks.host.logs import Repeated
from tasks.mlflow.model_cache import damage
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import SharedReleaseState, VersionOutcomes, WorkerReport

LOOK_S = 0.05
REPORT_S = 0.5

_log = logging.getLogger("loopline.serve")


class LoadedVersions:
    """One project's loaded versions. `pick` runs in the event loop, once a request: no response mixes versions.

    Args:
        settings: The server's settings.
        project: The project's name.
    """

    def __init__(self, settings: ServerSettings, project: str) -> None:
        self.project = project
        self.release: Release | None = None
        self.has_shadow = False
        self.on_swap: list[Callable[[Release], None]] = []
        self._place = settings.workspace.cache / "models" / project
        self._release_state = SharedReleaseState(settings.state(project) / "serving")
        self._generation = -1
        self._held: dict[str, LoadedModel] = {}
        self._loaded: frozenset[str] = frozenset()
        self._limits: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._me = processes.identity()
        self._seen: tuple[object, object] = (None, None)
        self._last_report: WorkerReport | None = None
        self._trouble = Repeated(_log)

    @property
    def is_ready(self) -> bool:
        """Whether a version can answer."""
        return self.release is not None and self.release.stable in self._held

    @property
    def versions(self) -> list[str]:
        """The versions that a client can request."""
        return [version for version in self.release.loaded if version in self._held] if self.release else []

    def pick(self, key: str, version: str | None = None) -> LoadedModel | None:
        """Return the version for this key, or the requested version; None if it is not loaded."""
        if self._release_state.switch.value != self._generation:
            self._turn()
        if self.release is None:
            return None
        requested = version or self.release.pick(key)
        return self._held.get(requested) if requested and requested in self._loaded else None

    def count(self, version: str, row_s: float, failed: bool = False) -> None:
        """Count a prediction of a version, and whether it failed or was slow, for the automatic rollback."""
        tally = self._counts.get(version)
        if tally is None:
            tally = self._counts[version] = {"answers": 0, "failed": 0, "slow": 0}
        tally["answers"] += 1
        tally["failed"] += failed
        limit = self._limits.get(version)
        tally["slow"] += limit is not None and row_s * 1e3 > limit

    async def follow(self) -> None:
        """Follow the controller until cancelled."""
        looks = 0
        try:
            while True:
                try:
                    await self.refresh()
                    if looks % round(REPORT_S / LOOK_S) == 0:
                        self._try_again()
                        self._report()
                except (LooplineError, OSError, ValueError) as error:
                    self._trouble.log(logging.ERROR, f"{self.project}: going on with what is loaded", error)
                looks += 1
                await asyncio.sleep(LOOK_S)
        finally:
            self._release_state.forget(os.getpid())

    async def refresh(self) -> None:
        """Load the versions of the next release; the swap itself happens by the switch."""
        if self._release_state.switch.value != self._generation:
            self._turn()
        seen = _stamp(self._release_state.release_path), _stamp(self._release_state.next_path)
        if seen == self._seen:
            return
        now, coming = self._release_state.release(), self._release_state.next()
        if now is not None and now.generation == self._generation:
            self._answer_by(now)
        self._failed = {}
        for version in coming.loaded if coming else ():
            await self._prepare(version)
        needed = {*(self.release.loaded if self.release else ()), *(coming.loaded if coming else ())}
        self._held = {version: served for version, served in self._held.items() if version in needed}
        self._seen = seen
        self._report()

    async def _prepare(self, version: str) -> None:
        if version in self._held:
            return
        try:
            self._held[version] = await asyncio.to_thread(self._load, version)
        except LooplineError as error:
            self._failed[version] = str(error)

    def _turn(self) -> None:
        """Change to the release that the switch names; versions that are not loaded yet are loaded here."""
        release = self._release_state.release()
        self._generation = self._release_state.switch.value if release is None else release.generation
        for version in release.loaded if release else ():
            if version not in self._held:
                try:
                    self._held[version] = self._load(version)
                except LooplineError as error:
                    _log.error("%s: version %s cannot be loaded: %s", self.project, version, error)
                    self._failed[version] = str(error)
        if release is not None and (release.stable in self._held or not self.is_ready):
            self._answer_by(release)
            for notify in self.on_swap:
                notify(release)

    def _answer_by(self, release: Release) -> None:
        self.release, self._loaded, self.has_shadow = release, frozenset(release.loaded), release.shadow is not None

    def _try_again(self) -> None:
        """Retry a stable version that failed to load: its files may have been downloaded again."""
        if self.release is not None and self.release.stable is not None and not self.is_ready:
            self._turn()

    def _load(self, version: str) -> LoadedModel:
        folder = self._place / version
        for name, got in damage(folder, _hashes(folder)):
            raise StoreError(f"version {version}: {name} is {got}: it is not what was registered")
        limit = serve_rules_of(folder).return_on.latency_ms
        if limit is not None:
            self._limits[version] = limit
        return LoadedModel(self.project, version, folder)

    def _report(self) -> None:
        tallies = {version: VersionOutcomes(**counts) for version, counts in self._counts.items()}
        report = WorkerReport(process=self._me, loaded=list(self._held), failed=dict(self._failed), tallies=tallies)
        if report != self._last_report:
            self._release_state.report(report)
            self._last_report = report


def _hashes(folder: Path) -> dict[str, str]:
    return read_json(folder.with_name(f"{folder.name}.json"))


def _stamp(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        stat = path.stat()
        return stat.st_ino, stat.st_mtime_ns
    return None
