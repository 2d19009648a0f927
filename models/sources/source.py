"""What a sort of sources says of itself: the fields of its row, and what its functions get and return.

`models/sources/schemes.py` is the table of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from models.files import Hashes
from models.project_spec.data import SqlQuery

Named = str | SqlQuery
"""What `data.source` says."""
Parts = Mapping[str, Any]
"""Parts of a step's key, by name."""
Fetch = Callable[[Named], Path]
"""Returns the file that a package source names, or a copy of what lies elsewhere."""


class Source(NamedTuple):
    """A source as a spec names it: the value of `data.source`, and the folder of the spec."""

    named: Named
    base: Path

    @property
    def text(self) -> str:
        """The source in messages; of all but a query the value itself."""
        return self.named if isinstance(self.named, str) else self.named.summary


class Loaded(NamedTuple):
    """What `read` returns: a path, a pandas DataFrame or an Arrow table, and its name in messages.

    The one reader of tables (`models/sources/read.py`) takes it from there.
    """

    rows: Any
    display_name: str = ""


class LastIngest(NamedTuple):
    """The record of the last ingest, as far as a source reads it.

    Attributes:
        key: The key of the step.
        digest: The hash of the rows that it wrote.
        parts: The parts of the key, the identity of the source among them.
        result: Its `rows`, and what was noted of the source before it was read.
    """

    key: str
    digest: str
    parts: Parts
    result: Parts


class Arrival(NamedTuple):
    """New data at a source.

    `change` is the same until the source changes again or is read; `rows` is the number of new rows, if cheap to count.
    """

    change: dict[str, Any]
    text: str
    rows: int | None = None


@dataclass(frozen=True)
class SourceRow:
    """A sort of sources.

    Attributes:
        name: What it is called.
        form: How a spec names one, for messages.
        owns: Returns whether the value of `data.source` names one.
        read: Returns the rows, or where they lie on this machine; `fetch` gets the file of a package.
        local: Returns the file or folder of this machine, None for none; refuses what can be known without reading.
        check: Refuses, before a run, a source that is not there; the flag says whether lines of text are read. A source
            whose `identity` refuses the same needs none: `plan` asks both.
        header: Returns the columns; None if only reading tells them.
        identity: Returns the parts of ingest's key that say what the source holds now; none if its text says all, or
            if nothing tells. With the parts of the last ingest as third argument it runs no own code and asks no
            address, but returns what it said then: so do pages of many projects.
        arrived: Returns what ingest notes of the source before it reads, JSON, for the next `growth`.
        growth: Returns what came since the last ingest.
        is_read_again: Returns whether a loop that nobody started by hand reads it again, since nothing tells whether
            it changed.
    """

    name: str
    form: str
    owns: Callable[[Any], bool]
    read: Callable[[Source, Fetch], Loaded]
    local: Callable[[Source], Path | None] = lambda source: None
    check: Callable[[Source, bool], None] = lambda source, is_text: None
    header: Callable[[Source], list[str] | None] = lambda source: None
    identity: Callable[[Source, Hashes, Parts | None], Parts] = lambda source, hashes, last: {}
    arrived: Callable[[Source], Any] = lambda source: None
    growth: Callable[[Source, LastIngest, Hashes, float], Arrival | None] = lambda source, before, hashes, now: None
    is_read_again: Callable[[Source], bool] = lambda source: False
