"""Keeps the compactor beside a server alive; it is a separate process, because the workers import no Arrow."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
import time
from collections.abc import Iterator

from models.launch import launched
from models.parent_death import ends_with_parent
from tasks.platform.services import supervisor
from tasks.release.settings import ServerSettings
from tasks.state.ingest_segments import waits

LOOK_S = 1.0
FIRST_S = 60.0
"""Seconds until it starts with nothing to move: the server is ready first, and old rows are still deleted."""
END_S = 10.0

_log = logging.getLogger("loopline.serve")


@contextlib.contextmanager
def compacting(settings: ServerSettings) -> Iterator[None]:
    """Run the compactor while in the block; it moves served predictions into the workspace's logs."""
    stop = threading.Event()
    thread = threading.Thread(target=_keep, args=(settings, stop), name="loopline-compactor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(END_S)


def _keep(settings: ServerSettings, stop: threading.Event) -> None:
    """Start the compactor when it is needed and restart it when it ends.

    The kernel ends the compactor with the thread that started it, so this thread lives as long as the server.
    """
    states = [settings.state(project) for project in settings.projects]
    late = time.monotonic() + FIRST_S
    while not stop.wait(LOOK_S):
        is_needed = time.monotonic() >= late or any(waits(state) for state in states)
        if not is_needed or supervisor(settings.workspace):  # a platform runs its own compactor
            continue
        with _started(settings.root) as process:
            while process.poll() is None and not stop.wait(LOOK_S):
                pass
            if not stop.is_set():
                _log.error("the compactor ended with %s: another is started", process.returncode)


@contextlib.contextmanager
def _started(root: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        ends_with_parent(launched("tasks.operations.compact", root, "--sidecar")), stdin=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
