"""Kill a process at a certain change of a file: every opening, linking, renaming and removing is a place to die at.

The process is forked off a server that only imported modules: delta-rs cannot be used in a fork of its user.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tasks.state.ingest_segments import move_held, moving
from tasks.state.predictions import label_store, prediction_log

PLACES = ("open", "os.link", "os.rename", "os.remove", "os.truncate")
IMPORTED = [
    "__main__",
    "deltalake",
    "filelock",
    "models.identity.hashing",
    "models.feedback.log_rows",
    "models.sources.row_batches",
    "orjson",
    "pandas",
    "pyarrow.parquet",
    "tasks.state.add_labels",
    "tasks.state.ingest_segments",
    "tasks.gc.collect",
    "tasks.gc.prediction_retention",
    "tasks.host.tables",
    "tests.killing",
]
CLEAN = multiprocessing.get_context("forkserver")
CLEAN.set_forkserver_preload(IMPORTED)


def move_and_merge(state: Path) -> None:
    """Do the compactor's work in a project."""
    with moving(state):
        move_held(state)
        for log in (prediction_log(state), label_store(state)):
            log.compact()


def killed_at(step: int, act: Callable[..., object], *args: object, **named: object) -> bool:
    """Call `act` in a process that gets kill -9 before its `step`-th change of a file; whether it came that far."""
    process = CLEAN.Process(target=_die_at, args=(step, act, args, named))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "it failed before it was killed"
    return process.exitcode != 0


def _die_at(step: int, act: Callable[..., object], args: tuple[object, ...], named: dict[str, object]) -> None:
    seen = 0

    def count(event: str, _: object) -> None:
        nonlocal seen
        seen += event in PLACES
        if seen == step and event in PLACES:  # the killing is an event too
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    act(*args, **named)
