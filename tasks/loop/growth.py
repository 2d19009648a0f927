"""New data at a project's source: detected without reading the source.

| source | is compared by |
|---|---|
| a file, or a folder of files | content, which is read only if size or time changed |
| `./source.py:load` | the result of the function `arrived` beside it, if there is one: JSON, such as a list of days |
| `./source.py:SOURCE` | the result of its `growth`, else of its `identity` |
| a query | the highest value of its cursor, else a count and hash of its rows by the server, or its file |
| a package | nothing: it is pinned, and never grows |
"""

from __future__ import annotations

import time

from models.frozen_model import FrozenModel
from models.pipeline.keys import key_of
from models.project_spec.blocks import Spec
from models.sources.schemes import scheme_of
from models.sources.source import LastIngest, Source
from tasks.host.workspace import Project
from tasks.loop.step_cache import StepCache


class SourceGrowth(FrozenModel):
    """New data at the source since it was last read.

    `key` is the same until the source changes again or is read. `rows` is the number of new rows, if cheap to count.
    """

    key: str
    text: str
    rows: int | None = None


def growth(project: Project, spec: Spec, now: float | None = None) -> SourceGrowth | None:
    """Return the new data since the last ingest, or None if there is none, nothing was read yet, or a file is growing.

    Raises:
        UserCodeError: The project's own `arrived`, or a function of its row, failed.
    """
    step_cache = StepCache(project, spec)
    before = step_cache.records.latest("ingest")
    if before is None or before.result.get("source") != str(spec.data.source):
        return None
    source, scheme = Source(spec.data.source, project.folder), scheme_of(spec.data.source)
    last = LastIngest(before.key, before.digest, before.parts, before.result)
    arrival = scheme.growth(source, last, step_cache.hashes, time.time() if now is None else now)
    step_cache.hashes.save()
    return arrival and SourceGrowth(key=key_of(arrival.change), text=arrival.text, rows=arrival.rows)
