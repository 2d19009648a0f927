"""The state of one worker, shared by all addresses and protocols."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tasks.release.loaded_versions import LoadedVersions
from tasks.release.settings import ServerSettings
from tasks.serve.access import AccessControl
from tasks.serve.batcher import DynamicBatcher
from tasks.serve.logs import RequestLog
from tasks.serve.metrics import Metrics
from tasks.serve.prediction_logger import PredictionLogger
from tasks.serve.request_context import RequestContext


@dataclass(slots=True)
class WorkerState:
    """The state of one worker.

    Args:
        settings: The server's settings.
        loaded: The loaded versions by project.
        prediction_loggers: The prediction loggers by project.
        access: The access control.
    """

    settings: ServerSettings
    loaded: dict[str, LoadedVersions]
    prediction_loggers: dict[str, PredictionLogger]
    access: AccessControl
    engine: DynamicBatcher = field(default_factory=DynamicBatcher)
    metrics: Metrics = field(default_factory=Metrics)
    log: RequestLog = field(default_factory=RequestLog)
    is_ending: bool = False

    @classmethod
    def of(cls, settings: ServerSettings) -> WorkerState:
        """Build the state of a new worker.

        Raises:
            UsageError, StoreError: See `AccessControl.of`.
        """
        loaded = {name: LoadedVersions(settings, name) for name in settings.projects}
        prediction_loggers = {name: PredictionLogger(settings, name) for name in settings.projects}
        return cls(settings, loaded, prediction_loggers, AccessControl.of(settings))

    def count_request(self, context: RequestContext, call: str) -> None:
        """Count a finished request, and perhaps log it. `call`: method and address."""
        seconds = time.perf_counter() - context.began
        self.metrics.passed(context, seconds)
        self.log.passed(context, seconds, call)
