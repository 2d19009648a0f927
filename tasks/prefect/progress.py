"""The progress of a task as an artifact on Prefect's page; one that Prefect does not take is left out."""

from __future__ import annotations

import contextlib
import os
import time

from models.errors import StoreError
from tasks.host.server_access import API
from tasks.prefect.flow_runs import ask

INTERVAL_S = 10.0
"""The least time between two updates: each is a request, which training waits for."""
ANSWER_S = 2.0


class ProgressArtifact:
    """The progress of one task run.

    Args:
        key: The artifact's key, of lower-case letters, numbers and dashes.
        flow_run: Prefect's id of the flow run.
        task_run: Prefect's id of the task run.
    """

    def __init__(self, key: str, flow_run: str, task_run: str) -> None:
        self._fields = {"key": key, "type": "progress", "flow_run_id": flow_run, "task_run_id": task_run}
        self._id = ""
        self._is_away = False
        self._last = float("-inf")

    def show(self, count: int, total: int, text: str) -> None:
        """Show that `count` of `total` units are done, at most every `INTERVAL_S`, and always the last one."""
        is_due = count >= total or time.monotonic() - self._last >= INTERVAL_S
        if self._is_away or not total or not is_due:
            return
        self._last = time.monotonic()
        content = {"data": round(100 * min(count / total, 1.0), 1), "description": text}
        self._is_away = True  # until Prefect has answered: it is asked once
        with contextlib.suppress(StoreError):
            api = os.environ[API]
            if self._id:
                ask(api, f"artifacts/{self._id}", content, "PATCH", ANSWER_S)
            else:
                self._id = str(ask(api, "artifacts/", {**self._fields, **content}, timeout_s=ANSWER_S)["id"])
            self._is_away = False
