"""Hears that a person cancels a flow run on Prefect's page that no worker runs: Prefect asks workers alone."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from models.errors import StoreError
from tasks.host.server_access import API
from tasks.prefect.flow_runs import all_runs, ask

LOOK_S = 5.0
"""How often Prefect is asked. Cost: one request."""
ANSWER_S = 5.0


class CancelWatch:
    """A thread that interrupts this process when its flow run is cancelled, and tells Prefect when the run has ended.

    Args:
        tag: The tag of the runs that this process begins.
        number: The signal that interrupts it, if it handles that.
    """

    def __init__(self, tag: str, number: signal.Signals) -> None:
        self._tag, self._number = tag, number
        self._cancelled: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loopline-cancel", daemon=True)

    def __enter__(self) -> CancelWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        state = {"type": "CANCELLED", "name": "Cancelled", "message": "a person cancelled it, and its loop has ended"}
        with contextlib.suppress(StoreError):  # the reaper closes what stays open
            for run in self._cancelled:
                ask(os.environ[API], f"flow_runs/{run}/set_state", {"state": state, "force": True}, timeout_s=ANSWER_S)

    def _watch(self) -> None:
        wanted = {"tags": {"all_": [self._tag]}, "state": {"type": {"any_": ["CANCELLING"]}}}
        while not self._over.wait(LOOK_S) and not self._cancelled:
            with contextlib.suppress(StoreError):  # the next look may be luckier
                runs = [str(run["id"]) for run in all_runs(os.environ[API], {"flow_runs": wanted})]
                if runs and callable(signal.getsignal(self._number)) and not self._over.is_set():
                    self._cancelled = runs
                    os.kill(os.getpid(), self._number)
