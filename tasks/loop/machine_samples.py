"""What a loop's machine does meanwhile, as metrics of its run under the names that MLflow's own sampling uses."""

from __future__ import annotations

import contextlib
import threading
import time

from models.errors import StoreError
from tasks.state.outbox import LOOP_RUN, Outbox

INTERVAL_S = 10.0


class MachineSamples:
    """A thread that records the machine's load and memory every `INTERVAL_S` while the block runs.

    Cost: about 1 ms of CPU and one row a sample.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loopline-machine", daemon=True)

    def __enter__(self) -> MachineSamples:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        import psutil

        psutil.cpu_percent()  # the first call has no time to look back on
        while not self._over.wait(INTERVAL_S):
            memory = psutil.virtual_memory()
            sample = {
                "system/cpu_utilization_percentage": psutil.cpu_percent(),
                "system/system_memory_usage_megabytes": memory.used / 1e6,
                "system/system_memory_usage_percentage": memory.percent,
            }
            with contextlib.suppress(StoreError):  # a chart that lacks a point ends no loop
                self._outbox.metrics(LOOP_RUN, sample, round((time.monotonic() - self._began) / INTERVAL_S))
