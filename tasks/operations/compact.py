"""The compactor: moves what servers wrote down into the logs, merges small parts, forgets what is old, delivers events.

A service of the platform; without a platform, `loopline serve` starts its own. Safe to kill at any moment: it writes
files atomically. While idle it only lists folders, and once a minute asks Prefect which runs crashed before they began.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from models.errors import LooplineError
from models.project_spec.blocks import Spec
from models.project_spec.serve import spec_of_version
from tasks.gc.prediction_retention import cut_us, forget_old
from tasks.host import logs as json_lines
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.carry_moves import MoveCarrier
from tasks.loop.carry_runs import RunCarrier
from tasks.operations.collect_garbage import DailyCollection
from tasks.platform import idle_monitoring, open_signals
from tasks.platform.services import supervisor
from tasks.prefect import events
from tasks.state.delta.delta_log import FEWEST_PARTS
from tasks.state.delta.places import commits_since_checkpoint
from tasks.state.delta.shared_log import shared_log
from tasks.state.ingest_segments import move_held, moving, waits
from tasks.state.predictions import label_store, prediction_log

PAUSE_S = 5.0
CARRY_S = 1.5
HOUR_S = 3600
NICE = 10
ASK_AGAIN_S = 60.0
SHOW_AGAIN_S = 600.0
TROUBLE = (LooplineError, OSError, ValueError, TypeError, KeyError, NotImplementedError)
"""Errors of one project, Arrow's included. Its rows stay where they are; the other projects go on."""

_log = logging.getLogger("loopline.compact")


@dataclass
class CompactionResult:
    """Counts of one pass over the projects, in rows and parts."""

    moved: int = 0
    merged: int = 0
    forgotten: int = 0

    def __str__(self) -> str:
        counts = {"rows moved": self.moved, "parts merged": self.merged, "rows forgotten": self.forgotten}
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


@dataclass
class Compactor:
    """Compacts all projects of a workspace; remembers up to which time old rows were deleted."""

    workspace: Workspace
    _cuts: dict[str, int] = field(default_factory=dict)
    _messages: dict[str, tuple[str, float]] = field(default_factory=dict)
    _hour: int = -1

    def once(self, now: float | None = None) -> CompactionResult:
        """Compact every project once; skip a log that fails or a project that another process is moving."""
        result = CompactionResult()
        for state in sorted((self.workspace.state / "projects").glob("*/")):
            try:
                self._tidy(state, result)
            except TROUBLE as error:
                self._say(state.name, error)
        now = time.time() if now is None else now
        if now // HOUR_S != self._hour:  # only hourly, because it reads every spec
            self._hour = int(now // HOUR_S)
            self._forget(result, now)
        return result

    def _tidy(self, state: Path, result: CompactionResult) -> None:
        logs = ("predictions", "labels")
        many = [name for name in logs if commits_since_checkpoint(state / name) >= FEWEST_PARTS]
        if not many and not waits(state):
            return
        with moving(state):
            result.moved += move_held(state)
            for name in many:
                log = prediction_log(state) if name == "predictions" else label_store(state)
                try:
                    result.merged += log.compact()
                except TROUBLE as error:
                    self._say(f"{state.name}/{name}", error)

    def _forget(self, result: CompactionResult, now: float) -> None:
        for spec in specs(self.workspace):
            state = self.workspace.state / "projects" / spec.name
            if spec.monitor.keep_days is None or not state.is_dir():
                continue
            before = cut_us(spec.monitor.keep_days, now)
            if self._cuts.get(spec.name) == before:
                continue
            try:
                with moving(state):
                    learns = spec.retrain.feedback and spec.data.kind not in ("series", "text")
                    result.forgotten += forget_old(state, before, spare_labelled=learns)
                    if shared := shared_log(state):
                        shared.forget(before)
                self._cuts[spec.name] = before
            except TROUBLE as error:
                self._say(f"{spec.name}: old predictions stay for now", error)

    def _say(self, where: str, error: Exception) -> None:
        """Log an error; the same error is logged once in ten minutes, not at every pass."""
        text, when = self._messages.get(where, ("", float("-inf")))
        if text != str(error) or time.monotonic() - when > SHOW_AGAIN_S:
            self._messages[where] = str(error), time.monotonic()
            _log.error("%s: %s", where, error)


def specs(workspace: Workspace) -> list[Spec]:
    """Return every project's spec: from `projects/`, else the one of its newest version in the model cache."""
    specs: dict[str, Spec] = {}
    for project in workspace.projects():
        with contextlib.suppress(LooplineError, OSError):
            project_spec = project.spec()
            specs[project_spec.name] = project_spec
    for state in sorted((workspace.state / "projects").glob("*/")):
        if state.name not in specs and (spec := _served_spec(workspace, state.name)) is not None:
            specs[state.name] = spec
    return list(specs.values())


def _served_spec(workspace: Workspace, name: str) -> Spec | None:
    folders = (workspace.cache / "models" / name).glob("*/spec.json")
    for path in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        with contextlib.suppress(ValidationError):
            return Spec.model_validate_json(json.dumps(spec_of_version(path)))
    return None


def run(workspace: Workspace, pause_s: float = PAUSE_S, *, as_sidecar: bool = False) -> NoReturn:
    """Repeat passes until the process is ended.

    Args:
        workspace: The workspace to compact.
        pause_s: Pause between two passes, in seconds.
        as_sidecar: Runs beside a server: while the platform runs, the platform's compactor does all the work. A sidecar
            never delivers events.
    """
    compactor, asked_at = Compactor(workspace), float("-inf")
    daily = DailyCollection(workspace)
    carriers = () if as_sidecar else (MoveCarrier(workspace), RunCarrier(workspace))
    while True:
        if not (as_sidecar and supervisor(workspace)):
            result = compactor.once()
            if str(result):
                _log.info("%s", result)
        if not as_sidecar:
            _deliver(workspace)
            if time.monotonic() - asked_at >= ASK_AGAIN_S:
                asked_at = time.monotonic()
                _ask_again(workspace)
                _skip_monitoring(workspace)
                with contextlib.suppress(LooplineError, OSError):  # tried again in a minute
                    daily.once()
        _rest(carriers, pause_s)


def _rest(carriers: Sequence[MoveCarrier | RunCarrier], pause_s: float) -> None:
    """Pause between two passes, but carry moves of champions to MLflow within two seconds."""
    until = time.monotonic() + pause_s
    while (left_s := until - time.monotonic()) > 0:
        for carrier in carriers:
            with contextlib.suppress(LooplineError, OSError):  # `status` and `doctor` say what waits
                carrier.once()
        time.sleep(min(left_s, CARRY_S))


def _deliver(workspace: Workspace) -> None:
    try:
        num_delivered = events.deliver(workspace)
    except (LooplineError, OSError) as error:
        _log.error("events wait: %s", error)
    else:
        if num_delivered:
            _log.info("%d events delivered", num_delivered)


def _ask_again(workspace: Workspace) -> None:
    try:
        for line in open_signals.ask_again(workspace):
            _log.info("%s", line)
    except TROUBLE as error:
        _log.error("signals wait: %s", error)


def _skip_monitoring(workspace: Workspace) -> None:
    try:
        for line in idle_monitoring.skip(workspace):
            _log.info("%s", line)
    except TROUBLE as error:
        _log.error("scheduled monitoring runs start as usual: %s", error)


def main() -> None:
    """Run `python -m tasks.operations.compact ROOT` until it or, with `--sidecar`, its parent is ended."""
    parser = argparse.ArgumentParser(prog="python -m tasks.operations.compact", description=__doc__)
    parser.add_argument("root", type=Path, help="The workspace.")
    parser.add_argument("--sidecar", action="store_true", help="Beside a server that started it, and ends with it.")
    args = parser.parse_args()
    if args.sidecar:
        json_lines.to_stderr()
    else:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    workspace = Workspace(args.root.resolve())
    stores.configure(workspace)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, as SIGTERM does, and without a traceback
    if args.sidecar:
        os.nice(NICE)  # the server's requests have priority
    run(workspace, as_sidecar=args.sidecar)


if __name__ == "__main__":
    main()
