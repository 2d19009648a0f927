"""Background processes of a release: the rollback job, and shadows."""

from __future__ import annotations

import logging
import os
import subprocess
import time

from models.parent_death import ends_with_parent
from tasks.host.workspace import CLONE, Workspace

AGAIN_S = 30.0
REFUSED = 3
"""The exit code of a gate: asking again would change nothing."""

_log = logging.getLogger("loopline.serve")


class Background:
    """The background processes of one project's release controller. They end when it ends, however it ends."""

    def __init__(self, workspace: Workspace, project: str) -> None:
        self._workspace, self._project = workspace, project
        self._shadow: subprocess.Popen[bytes] | None = None
        self._shadowed: str | None = None
        self._shadow_again = 0.0
        self._giving: subprocess.Popen[bytes] | None = None
        self._retry_at: dict[str, float] = {}

    def give_back(self, version: str, why: str) -> None:
        """Roll the version back in the registry, in a process of its own; tried again until it succeeded."""
        if self._giving is not None:
            code = self._giving.poll()
            if code is None:
                return
            self._giving = None
            if code == REFUSED:
                self._retry_at[version] = float("inf")
        if time.monotonic() >= self._retry_at.get(version, 0.0):
            self._retry_at[version] = time.monotonic() + AGAIN_S
            self._giving = self._start("tasks.release.registry_jobs", "rollback", version, why)

    def forget(self, versions: set[str]) -> None:
        """Forget versions that were rolled back: if one fails again, the registry is changed again."""
        self._retry_at = {version: at for version, at in self._retry_at.items() if version in versions}

    def shadow(self, version: str | None) -> None:
        """See that this version answers as a shadow, and no other."""
        dead = self._shadow is not None and self._shadow.poll() is not None
        if self._shadow is not None and (dead or version != self._shadowed):
            self._end_shadow()
        if version is not None and self._shadow is None and (time.monotonic() >= self._shadow_again):
            self._shadow = self._start("tasks.release.shadow", version)
            self._shadowed, self._shadow_again = version, time.monotonic() + AGAIN_S

    def end(self) -> None:
        """End the shadow; a rollback job in progress may finish."""
        self._end_shadow()

    def _end_shadow(self) -> None:
        if self._shadow is None:
            return
        if self._shadow.poll() not in (None, 0):
            _log.error("%s: the shadow ended with %s; it begins again", self._project, self._shadow.returncode)
        self._shadow.terminate()
        self._shadow.wait()
        self._shadow = None

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["-m", module, str(self._workspace.root), self._project, *arguments]
        return subprocess.Popen(ends_with_parent(command), cwd=CLONE, env=os.environ)
