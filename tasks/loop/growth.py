"""New data at a project's source: detected without reading the source.

| source | is compared by |
|---|---|
| a file, or a folder of files | content, which is read only if size or time changed |
| `./source.py:load` | the result of the function `arrived` beside it, if there is one: JSON, such as a list of days |
| a package | nothing: it is pinned, and never grows |
"""

from __future__ import annotations

import time
from pathlib import Path

from models.errors import DataError
from models.frozen_model import FrozenModel
from models.pipeline.keys import key_of
from models.pipeline.records import StepRecord
from models.project_spec import references
from models.project_spec.blocks import Spec
from models.sources.folders import visible_files
from tasks.host.workspace import Project
from tasks.loop.step_cache import StepCache
from tasks.tools import sources

SETTLE_S = 2.0
COUNTED = (".parquet", ".csv", ".tsv", ".txt")


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
        UserCodeError: The project's own `arrived` failed.
    """
    step_cache = StepCache(project, spec)
    before = step_cache.records.latest("ingest")
    if before is None or before.result.get("source") != spec.data.source:
        return None
    if references.is_own_code(spec.data.source):
        return _of_function(project, spec, before)
    path = references.local_source(spec.data.source, project.folder)
    if path is None:
        return None
    growth = _of_files(path.resolve(), spec, step_cache, before, time.time() if now is None else now)
    step_cache.hashes.save()
    return growth


def _of_function(project: Project, spec: Spec, before: StepRecord) -> SourceGrowth | None:
    arrival, arrival_before = sources.arrived(spec, project.folder), before.result.get(sources.ARRIVED)
    if arrival is None or arrival_before is None or arrival == arrival_before:
        return None
    new = (
        [part for part in arrival if part not in arrival_before]
        if isinstance(arrival, list) and isinstance(arrival_before, list)
        else []
    )
    text = f"came at {spec.data.source}: {', '.join(map(str, new[:5]))}" if new else f"{spec.data.source} has changed"
    return SourceGrowth(key=key_of({"before": before.key, "now": arrival}), text=text)


def _of_files(path: Path, spec: Spec, step_cache: StepCache, before: StepRecord, now: float) -> SourceGrowth | None:
    digest_before = before.parts.get(f"file:{spec.data.source}")
    files = visible_files(path) if path.is_dir() else [path]
    if not path.exists() or not files or any(0 <= now - file.stat().st_mtime < SETTLE_S for file in files):
        return None
    digest = step_cache.hashes.of(path)
    if digest == digest_before:
        return None
    rows = _rows(files)
    fed_back = int(before.result.get("feedback", {}).get("joined", 0))
    num_new = rows - int(before.result["rows"]) + fed_back if rows is not None else None
    text = f"{spec.data.source}: {num_new:+,} rows" if num_new else f"{spec.data.source} has changed"
    return SourceGrowth(key=key_of({"before": before.digest, "now": digest}), text=text, rows=num_new)


def _rows(files: list[Path]) -> int | None:
    """Count Parquet rows by footers and plain text rows by lines; return None for other or unreadable files."""
    from models.sources.row_batches import count_rows

    total = 0
    for file in files:
        try:
            if file.suffix not in COUNTED:
                return None
            total += count_rows(file)
        except DataError:
            return None
    return total
