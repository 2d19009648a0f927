"""What one worker holds: every address, over any protocol, answers from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tasks.release.loaded_versions import Shelf
from tasks.release.settings import Settings
from tasks.serve.access import Access
from tasks.serve.batcher import Engine
from tasks.serve.logs import RequestLog
from tasks.serve.metrics import Metrics
from tasks.serve.prediction_logger import Book


@dataclass(slots=True)
class State:
    """The state of one worker.

    Args:
        settings: What the server was started with.
        shelves: The loaded versions by project.
        books: Where answers are written down, by project.
        access: Who may ask.
    """

    settings: Settings
    shelves: dict[str, Shelf]
    books: dict[str, Book]
    access: Access
    engine: Engine = field(default_factory=Engine)
    metrics: Metrics = field(default_factory=Metrics)
    log: RequestLog = field(default_factory=RequestLog)
    is_ending: bool = False

    @classmethod
    def of(cls, settings: Settings) -> State:
        """The state that a worker begins with.

        Raises:
            UsageError, StoreError: See `Access.of`.
        """
        shelves = {name: Shelf(settings, name) for name in settings.projects}
        books = {name: Book(settings, name) for name in settings.projects}
        return cls(settings, shelves, books, Access.of(settings))
