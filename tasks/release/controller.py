"""The release controller: watches the registry, downloads and checks a version, loads it everywhere, swaps.

There is one thread per project, in the parent process of the workers. If a workspace has several servers, one leads.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
import time
from dataclasses import dataclass

from models.errors import LooplineError, StoreError
from models.parent_death import ends_with_parent
from models.project_spec.serve import serve_rules_of
from models.serving.registry import RegisteredVersion
from models.serving.releases import PROMOTION, Release, ReleasePlan, taken_back, wanted
from tasks.host import database
from tasks.host.logs import Repeated
from tasks.host.workspace import CLONE, Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.model_cache import local_copy
from tasks.mlflow.release_plans import plan_of
from tasks.release.deployment import CountExchange
from tasks.release.fetch_and_verify import bring, try_out
from tasks.release.registry_watcher import RegistryWatcher
from tasks.release.rollback_guard import RollbackGuard
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import SharedReleaseState
from tasks.state import journal

NUDGE_S = 0.05
PREPARE_S = 15.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
SWAPS_FILE = "swaps.jsonl"
AGAIN_S = 30.0
REFUSED = 3
"""The exit code of a gate: asking again would change nothing."""

_log = logging.getLogger("loopline.serve")


@dataclass
class _Refusal:
    """Why a version was refused, and when it is tried again."""

    why: str
    pause_s: float = FIRST_PAUSE_S
    until: float = 0.0


@dataclass(frozen=True)
class _RegistryState:
    """The state of the registry: the champion and the release plan beside it."""

    champion: RegisteredVersion | None
    plan: ReleasePlan


class Background:
    """The background processes of one project's release controller. They end when it ends, however it ends."""

    def __init__(self, workspace: Workspace, project: str) -> None:
        self._workspace, self._project = workspace, project
        self._shadow: subprocess.Popen[bytes] | None = None
        self._shadowed: str | None = None
        self._shadow_again = 0.0
        self._giving: subprocess.Popen[bytes] | None = None
        self._retry_at: dict[str, float] = {}

    def give_back(self, version: str, reason: str, act: str = "") -> None:
        """Roll the version back in the registry, in a process of its own; tried again until it succeeded.

        `act` is the id of the trial or promotion that ends: a later one of the same version goes on.
        """
        if self._giving is not None:
            code = self._giving.poll()
            if code is None:
                return
            self._giving = None
            if code == REFUSED:
                self._retry_at[version] = float("inf")
        if time.monotonic() >= self._retry_at.get(version, 0.0):
            self._retry_at[version] = time.monotonic() + AGAIN_S
            self._giving = self._start("tasks.release.registry_jobs", "rollback", version, reason, act)

    def forget(self, versions: set[str]) -> None:
        """Forget versions that were rolled back: if one fails again, the registry is changed again."""
        self._retry_at = {version: moment for version, moment in self._retry_at.items() if version in versions}

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
            _log.error("%s: the shadow ended with %s; it starts again", self._project, self._shadow.returncode)
        self._shadow.terminate()
        self._shadow.wait()
        self._shadow = None

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["-m", module, str(self._workspace.root), self._project, *arguments]
        return subprocess.Popen(ends_with_parent(command), cwd=CLONE, env=os.environ)


class ReleaseController:
    """Keeps one project's release up to date while this process leads.

    `looked`: set after the first look. `exchange`: with the servers of other machines; None without a shared database.

    Raises:
        UsageError: The registry is a database that only MLflow itself can read.
    """

    def __init__(self, settings: ServerSettings, project: str) -> None:
        self.project, self.looked = project, threading.Event()
        self.release_state = SharedReleaseState(settings.state(project) / "serving")
        self.watcher = RegistryWatcher(project)
        self._workspace = settings.workspace
        self._versions = self._workspace.cache / "models" / project
        self.exchange = CountExchange(settings.state(project)) if database.is_shared() else None
        self._guard = RollbackGuard(settings.state(project), self._versions, self.exchange)
        self._background = Background(self._workspace, project)
        self._refused: dict[str, _Refusal] = {}
        self._checked: set[str] = set()
        self._tried: set[str] = set()
        self._leads = False
        self._last_message = ""

    def step(self) -> None:
        """Look at the registry once, and act on the result."""
        if not self._leads and not self._take_the_lead():
            return
        release = self._guarded(self.release_state.release() or Release())
        try:
            registry = self._ask(release)
        except StoreError as error:
            self._say(f"{self.project}: {error}: the version that answers stays")
            return
        if registry.champion is None:
            self._say(f"{self.project}: the registry has no champion: waiting for one")
        else:
            self._say("")
        self._follow(release, registry)

    def end(self) -> None:
        """End the background processes."""
        self._background.end()

    def _take_the_lead(self) -> bool:
        """Return whether this process leads now. The kernel releases the lock when the process ends in any way."""
        import filelock

        self._lock = filelock.FileLock(self.release_state.folder / "lead.lock")
        with contextlib.suppress(filelock.Timeout):
            self._lock.acquire(timeout=0)
            release = self.release_state.release()
            self.release_state.give_up()
            self.release_state.switch.set(release.generation if release else 0)
            self._tried |= set(release.loaded if release else ())
            self._leads = True
        return self._leads

    def _ask(self, release: Release) -> _RegistryState:
        try:
            champion = self.watcher.champion()
        except StoreError:
            with contextlib.suppress(StoreError):
                if release.stable is None:
                    number = local_copy(self._workspace, self.project).number
                    _log.warning(
                        "%s: the registry is away: beginning with version %s from the cache", self.project, number
                    )
                    self.release_state.publish(wanted(release, number, ReleasePlan(), {}, None, time.time()))
            raise
        plan = plan_of(champion)
        if champion and plan.shadow is None and serve_rules_of(self._versions / champion.number).shadow:
            challenger = registry_reader.aliased(self.project, "challenger")
            plan = plan.model_copy(update={"shadow": challenger.number if challenger else None})
        return _RegistryState(champion, plan)

    def _follow(self, release: Release, registry: _RegistryState) -> None:
        champion = registry.champion
        versions = {champion.number: champion} if champion else {}
        for number in dict.fromkeys([*versions, *registry.plan.versions]):
            if not self._is_at_hand(number, release):
                self._let_in(number, versions.get(number), release)
        named = {*versions, *registry.plan.versions}
        self._refused = {number: refusal for number, refusal in self._refused.items() if number in named}
        rule = serve_rules_of(self._versions / champion.number).canary if champion else None
        refused = {number: refusal.why for number, refusal in self._refused.items()}
        promotion = champion.tags.get(PROMOTION, "") if champion else ""
        current = champion.number if champion else None
        new = wanted(release, current, registry.plan, refused, rule, time.time(), promotion)
        if new.generation != release.generation:
            self._swap(release, new)
        elif new != release:
            self.release_state.publish(new)
        self._background.shadow(new.shadow)
        self._background.forget(set(new.returned))

    def _is_at_hand(self, number: str, release: Release) -> bool:
        return number in self._checked and number in (*release.loaded, release.shadow)

    def _let_in(self, number: str, version: RegisteredVersion | None, release: Release) -> None:
        """Download and smoke-test a version, or refuse it; a refused version is tried again after growing pauses."""
        refusal = self._refused.get(number)
        if refusal is not None and time.monotonic() < refusal.until:
            return
        try:
            version = version or registry_reader.numbered(self.project, number)
            if version is None:
                raise StoreError(
                    f"{self.project}: there is no version {number}: end its trial by "
                    f"`loopline release {self.project} --end`"
                )
            folder = bring(self._workspace, self.project, version)
            if release.stable is not None and number not in self._tried:
                try_out(self.project, number, folder)
        except LooplineError as error:
            self._refuse(number, str(error))
        else:
            self._tried.add(number)
            self._checked.add(number)
            self._refused.pop(number, None)

    def _refuse(self, number: str, reason: str) -> None:
        before = self._refused.get(number)
        pause = FIRST_PAUSE_S if before is None else min(2 * before.pause_s, LONGEST_PAUSE_S)
        if before is None or before.why != reason:
            _log.error("%s: version %s is refused: %s", self.project, number, reason)
        self._refused[number] = _Refusal(reason, pause, time.monotonic() + pause)
        self._checked.discard(number)

    def _swap(self, release: Release, new: Release) -> None:
        """Make every worker load the new versions, then switch all workers at once."""
        began = time.monotonic()
        self.release_state.prepare(new)
        failed = self._gather(new)
        if failed:
            self.release_state.give_up()
            for number, reason in failed.items():
                self._tried.discard(number)
                self._refuse(number, reason)
            return
        self._publish(release, new, "")
        _log.info("%s: swapped in %.0f ms", self.project, (time.monotonic() - began) * 1e3)

    def _gather(self, new: Release) -> dict[str, str]:
        """Wait until every worker has loaded the new versions; return those that a worker could not load, and why.

        Does not wait for a worker that dies, nor for one that does not report within PREPARE_S: such a worker loads
        the versions at its next pick.
        """
        canary = new.canary.version if new.canary else None
        needed = {version for version in (new.stable, canary) if version}
        deadline = time.monotonic() + PREPARE_S
        while True:
            reports = self.release_state.reports()
            failed = {
                number: reason for report in reports for number, reason in report.failed.items() if number in needed
            }
            late = [report.process["pid"] for report in reports if not needed <= set(report.loaded)]
            if failed or not late:
                return failed
            if time.monotonic() > deadline:
                _log.warning("%s: swapping without the workers %s: they do not answer", self.project, late)
                return {}
            time.sleep(0.005)

    def _publish(self, release: Release, new: Release, cause: str) -> None:
        self.release_state.publish(new)
        canary = f", {new.canary.share:g} by version {new.canary.version}" if new.canary else ""
        reason = f": {cause}" if cause else ""
        _log.info("%s: version %s answers (before: %s)%s%s", self.project, new.stable, release.stable, canary, reason)
        line = {"at": new.since, "before": release.stable, "why": cause, **new.model_dump(exclude={"since"})}
        with contextlib.suppress(StoreError):  # a full disk: the swap has happened all the same
            journal.append(self.release_state.folder / SWAPS_FILE, line)

    def _guarded(self, release: Release) -> Release:
        """Roll a failing version back at once; the registry is updated in the background."""
        reports = self.release_state.reports()
        for number in {number for report in reports for number in report.failed} & {release.stable}:
            self._checked.discard(str(number))  # its local files are damaged: they are downloaded again
        trip = self._guard.look(release, reports)
        new = taken_back(release, *trip, time.time()) if trip else None
        if trip and new:
            _log.error("%s: version %s is rolled back: %s", self.project, *trip)
            self._publish(release, new, f"version {trip[0]}: {trip[1]}")
            release = new
        for number, reason in release.returned.items():
            self._background.give_back(number, reason, release.returned_from.get(number, ""))
        return release

    def _say(self, text: str) -> None:
        """Log a problem once, and log its end."""
        if text and text != self._last_message:
            _log.warning("%s", text)
        elif self._last_message and not text:
            _log.info("%s: the registry answers", self.project)
        self._last_message = text


def follow(lead: ReleaseController, stop: threading.Event) -> None:
    """Run the controller's steps until `stop` is set; a nudge starts the next step at once."""
    trouble = Repeated(_log)
    while not stop.is_set():
        try:
            lead.step()
        except Exception as error:  # noqa: BLE001 - a failed step must not end the thread
            trouble.log(logging.ERROR, f"{lead.project}: the version that answers stays", error, exc_info=True)
        lead.looked.set()
        waited = 0.0
        while waited < lead.watcher.pause_s and not lead.release_state.was_nudged() and not stop.wait(NUDGE_S):
            waited += NUDGE_S
    lead.end()
