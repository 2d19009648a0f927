"""The release controller: watches what should serve, downloads and checks a version, loads it everywhere, swaps.

There are two threads per project, in the parent process of the workers: one follows the registry (`step`), the other
rolls a failing version back (`guard`). So no store that hangs, no download and no swap delays a rollback. If a
workspace has several servers, one leads.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from models.errors import LooplineError, StoreError
from models.launch import launched
from models.parent_death import ends_with_parent
from models.project_spec.serve import serve_rules_of
from models.serving.registry import RegisteredVersion
from models.serving.releases import PROMOTION, Release, ReleasePlan, taken_back, wanted
from tasks.host import database
from tasks.host.logs import Repeated
from tasks.host.workspace import CLONE, Workspace
from tasks.mlflow.model_cache import local_copy
from tasks.mlflow.release_plans import plan_of
from tasks.release.deployment import CountExchange
from tasks.release.fetch_and_verify import bring, try_out
from tasks.release.registry_watcher import RegistryWatcher
from tasks.release.rollback_guard import RollbackGuard
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import SharedReleaseState
from tasks.state import journal, registered_models

NUDGE_S = 0.05
GUARD_S = 0.25
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
    """What should serve: the champion and the release plan beside it. `away`: why this is not what was decided last."""

    champion: RegisteredVersion | None
    plan: ReleasePlan
    away: str = ""


class Background:
    """The background processes of one project's release controller. They end when it ends, however it ends."""

    def __init__(self, workspace: Workspace, project: str) -> None:
        self._workspace, self._project = workspace, project
        self._shadow: subprocess.Popen[bytes] | None = None
        self._shadowed: str | None = None
        self._shadow_again = 0.0
        self._giving: subprocess.Popen[bytes] | None = None
        self._looking: subprocess.Popen[bytes] | None = None
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

    @property
    def is_looking(self) -> bool:
        """Whether a look at MLflow is in progress."""
        return self._looking is not None and self._looking.poll() is None

    def look(self) -> None:
        """Record what was moved in MLflow, in a process of its own."""
        self._looking = self._start("tasks.release.registry_jobs", "look")

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
        """End the shadow and a look, which the next leader repeats; a rollback job in progress may finish."""
        self._end_shadow()
        if self._looking is not None:
            self._looking.terminate()
            self._looking.wait()

    def _end_shadow(self) -> None:
        if self._shadow is None:
            return
        if self._shadow.poll() not in (None, 0):
            _log.error("%s: the shadow ended with %s; it starts again", self._project, self._shadow.returncode)
        self._shadow.terminate()
        self._shadow.wait()
        self._shadow = None

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = launched(module, str(self._workspace.root), self._project, *arguments)
        return subprocess.Popen(ends_with_parent(command), cwd=CLONE, env=os.environ)


class ReleaseController:
    """Keeps one project's release up to date while this process leads.

    `looked`: set after the first look. `exchange`: with the servers of other machines; None without a shared database.
    `step` and `guard` each have a thread; a release is published only in place of the one that it was made from.

    Raises:
        UsageError: Neither the state database nor MLflow's server is known.
    """

    def __init__(self, settings: ServerSettings, project: str) -> None:
        self.project, self.looked = project, threading.Event()
        self.release_state = SharedReleaseState(settings.state(project) / "serving")
        self._workspace = settings.workspace
        self.watcher = RegistryWatcher(self._workspace.state, project)
        self._versions = self._workspace.cache / "models" / project
        self.exchange = CountExchange(settings.state(project)) if database.is_shared() else None
        self._guard = RollbackGuard(settings.state(project), self._versions, self.exchange)
        self._background = Background(self._workspace, project)
        self._refused: dict[str, _Refusal] = {}
        self._checked: set[str] = set()
        self._tried: set[str] = set()
        self._leads = False
        self._publishing = threading.Lock()
        self._last_message = ""

    def step(self) -> None:
        """Look once at what should serve, and act on the result."""
        if not self._leads and not self._take_the_lead():
            return
        try:
            registry = self._ask()
        except StoreError as error:
            self._go_on_without(error)
            return
        if registry.champion is None:
            self._say(f"{self.project}: the registry has no champion: waiting for one")
        else:
            self._say(registry.away)
        self._follow(self._release(), registry)

    def guard(self) -> None:
        """Roll a failing version back at once, if this process leads; the registry is updated in the background.

        This asks no store and waits for none.
        """
        if not self._leads:
            return
        release = self._release()
        trip = self._guard.look(release, self.release_state.reports())
        new = taken_back(release, *trip, time.time()) if trip else None
        if trip and new and self._publish(release, new, f"version {trip[0]}: {trip[1]}"):
            _log.error("%s: version %s is rolled back: %s", self.project, *trip)
            release = new
        for number, reason in release.returned.items():
            self._background.give_back(number, reason, release.returned_from.get(number, ""))
        self._background.forget(set(release.returned))

    def was_nudged(self) -> bool:
        """Return whether MLflow told of a change since the last call; a move that was made there is then recorded."""
        if self._background.is_looking:
            return False  # the nudge waits: it may tell of a change after that look
        is_nudged = self.release_state.was_nudged()
        if is_nudged and self.watcher.follows_moves:
            self._background.look()
        return is_nudged

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
            self._look_first()
        return self._leads

    def _look_first(self) -> None:
        """Have the moves read that only MLflow holds, as after an update from an older Loopline."""
        with contextlib.suppress(StoreError), database.reading(self._workspace.state) as connection:
            if registered_models.is_unread(connection, self.project):
                self._background.look()

    def _release(self) -> Release:
        return self.release_state.release() or Release()

    def _ask(self) -> _RegistryState:
        """Return what should serve; at a start without the state database what MLflow's alias says."""
        away = ""
        try:
            champion = self.watcher.champion()
        except StoreError as error:
            if not self._has_only_the_alias():
                raise
            champion = self.watcher.alias()
            away = f"{self.project}: {error}: beginning with MLflow's alias"
        plan = plan_of(champion)
        if champion and plan.shadow is None and serve_rules_of(self._versions / champion.number).shadow:
            plan = plan.model_copy(update={"shadow": self.watcher.challenger()})
        return _RegistryState(champion, plan, away)

    def _has_only_the_alias(self) -> bool:
        """Return whether neither an earlier release nor the cache can answer, but MLflow's server can be asked."""
        if self._release().stable is not None or not self.watcher.has_http:
            return False
        with contextlib.suppress(StoreError):
            local_copy(self._workspace, self.project)
            return False
        return True

    def _go_on_without(self, error: StoreError) -> None:
        """Keep the release while nothing says what should serve; at a start take the version in the cache."""
        release, goes_on = self._release(), "the version that answers stays"
        new = release
        if release.stable is None:
            with contextlib.suppress(StoreError):
                number = local_copy(self._workspace, self.project).number
                goes_on = f"beginning with version {number} from the cache"
                new = wanted(release, number, ReleasePlan(), {}, None, time.time())
        away = f"{self.project}: {error}: {goes_on}"
        self._say(away)
        if new.stable is not None and (not release.away or new is not release):
            self._replace(release, new.model_copy(update={"away": away}))

    def _follow(self, release: Release, registry: _RegistryState) -> None:
        champion = registry.champion
        if release.stable and any(release.stable in report.failed for report in self.release_state.reports()):
            self._checked.discard(release.stable)  # its local files are damaged: they are downloaded again
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
        new = new.model_copy(update={"away": registry.away})
        if new.generation != release.generation:
            self._swap(release, new)
        elif new != release:
            self._replace(release, new)
        self._background.shadow(new.shadow)

    def _is_at_hand(self, number: str, release: Release) -> bool:
        return number in self._checked and number in (*release.loaded, release.shadow)

    def _let_in(self, number: str, version: RegisteredVersion | None, release: Release) -> None:
        """Download and smoke-test a version, or refuse it; a refused version is tried again after growing pauses."""
        refusal = self._refused.get(number)
        if refusal is not None and time.monotonic() < refusal.until:
            return
        try:
            version = version or self.watcher.version(number)
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
        for number, reason in failed.items():
            self._tried.discard(number)
            self._refuse(number, reason)
        if failed or not self._publish(release, new, ""):
            self.release_state.give_up()
            return
        _log.info("%s: swapped in %.0f ms", self.project, (time.monotonic() - began) * 1e3)

    def _gather(self, new: Release) -> dict[str, str]:
        """Wait until every worker has loaded the new versions; return those that a worker could not load, and why.

        Does not wait for a worker that dies, nor for one that does not report within PREPARE_S: such a worker loads
        the versions at its next pick. Nor once the guard has published another release: then there is no next one.
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
            if failed or not late or self.release_state.next() is None:
                return failed
            if time.monotonic() > deadline:
                _log.warning("%s: swapping without the workers %s: they do not answer", self.project, late)
                return {}
            time.sleep(0.005)

    def _publish(self, release: Release, new: Release, cause: str) -> bool:
        """Replace a release by the next generation; return whether it was still the current one."""
        if not self._replace(release, new):
            return False
        canary = f", {new.canary.share:g} by version {new.canary.version}" if new.canary else ""
        reason = f": {cause}" if cause else ""
        _log.info("%s: version %s answers (before: %s)%s%s", self.project, new.stable, release.stable, canary, reason)
        line = {"at": new.since, "before": release.stable, "why": cause, **new.model_dump(exclude={"since"})}
        with contextlib.suppress(StoreError):  # a full disk: the swap has happened all the same
            journal.append(self.release_state.folder / SWAPS_FILE, line)
        return True

    def _replace(self, release: Release, new: Release) -> bool:
        """Publish `new` if `release` is still the current one; else the other thread's stays, and is looked at next."""
        with self._publishing:
            is_current = self._release() == release
            if is_current:
                self.release_state.publish(new)
        return is_current

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
        _tried(lead.step, lead.project, trouble)
        lead.looked.set()
        waited = 0.0
        while waited < lead.watcher.pause_s and not lead.was_nudged() and not stop.wait(NUDGE_S):
            waited += NUDGE_S
    lead.end()


def guard(lead: ReleaseController, stop: threading.Event) -> None:
    """Run the controller's guard until `stop` is set."""
    trouble = Repeated(_log)
    while not stop.wait(GUARD_S):
        _tried(lead.guard, lead.project, trouble)


def _tried(act: Callable[[], None], project: str, trouble: Repeated) -> None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - a failed step must not end the thread
        trouble.log(logging.ERROR, f"{project}: the version that answers stays", error, exc_info=True)
