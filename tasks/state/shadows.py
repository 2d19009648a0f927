"""Predictions of shadows: in a project's state, `shadows/VERSION/`, one `DeltaLog` each.

| column | type | is |
|---|---|---|
| `id` | text | id of the served prediction |
| `at` | timestamp[us, UTC] | time of the served prediction |
| `version` | text | version that answered |
| `score`, `scores` | as in the prediction log | the served prediction |
| `shadow.score`, `shadow.scores` | the same | the shadow's prediction |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from models.files import read_json, write_json
from tasks.state.delta.delta_files import times_of
from tasks.state.delta.delta_log import DeltaLog

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCORES = ("score", "scores", "shadow.score", "shadow.scores")
MOST_COMPARED = 20_000
"""Number of last rows that a comparison uses."""
PREDICTIONS = "predictions"
"""The source name in a shadow's log; its offset is a cursor of the prediction log."""


class ShadowedRows(NamedTuple):
    """Rows that a shadow predicted too: ids, who answered, and both scores, each (row,), or (row, class) of classes."""

    ids: list[str]
    versions: list[str | None]
    answered: NDArray[np.float64]
    shadow: NDArray[np.float64]


def shadow_log(state: Path, version: str) -> DeltaLog:
    """Return the log of a version's predictions as a shadow."""
    import pyarrow as pa

    fields = {"id": pa.string(), "at": pa.timestamp("us", tz="UTC"), "version": pa.string()}
    kinds = (pa.float64(), pa.list_(pa.float64()), pa.float64(), pa.list_(pa.float64()))
    return DeltaLog(_folder(state, version), pa.schema({**fields, **dict(zip(SCORES, kinds, strict=True))}))


def tidy(log: DeltaLog) -> None:
    """Merge a shadow's small parts; once it has more than twice the compared rows, delete the older ones."""
    import numpy as np

    log.compact()
    if sum(part.rows for part in log.parts()) > 2 * MOST_COMPARED:
        times = np.concatenate([times_of(table) for table in log.scan(columns=["at"])])
        log.forget(int(np.partition(times, -MOST_COMPARED)[-MOST_COMPARED]))


def place_of(state: Path, version: str) -> int | None:
    """Return the cursor of the prediction log up to which a shadow has predicted; None before it began."""
    return read_json(_place(state, version)).get("cursor")


def set_place(state: Path, version: str, cursor: int, note: str) -> None:
    """Store how far a shadow has predicted. `note`: which rows it could not predict, and why."""
    write_json(_place(state, version), {"cursor": cursor, "note": note})


def note_of(state: Path, version: str) -> str:
    """Return the note on which rows a shadow could not predict, and why."""
    return str(read_json(_place(state, version)).get("note", ""))


def answers(state: Path, version: str) -> ShadowedRows:
    """Return the last rows that a shadow predicted and another version answered.

    Only the first row of an id counts: a repeated request is the same prediction. What the version itself answered, as
    a canary, says nothing.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    log = shadow_log(state, version)
    tables: list[pa.Table] = []
    rows = 0
    for part in reversed(log.parts()):
        if rows >= MOST_COMPARED:
            break
        tables[:0] = list(log.scan(part.first - 1, part.last, ["id", "version", *SCORES]))
        rows = sum(table.num_rows for table in tables)
    table = pa.concat_tables(tables).slice(max(0, rows - MOST_COMPARED)) if tables else None
    if table:
        table = table.filter(pc.fill_null(pc.not_equal(table.column("version"), version), fill_value=True))
    if not table:
        return ShadowedRows([], [], np.zeros(0), np.zeros(0))
    _, first = np.unique(table.column("id").to_numpy(), return_index=True)
    table = table.take(pa.array(np.sort(first)))
    is_single = table.column("scores").null_count == table.num_rows
    names = ("score", "shadow.score") if is_single else ("scores", "shadow.scores")
    answered, shadow = (np.array(table.column(name).to_pylist(), np.float64) for name in names)
    return ShadowedRows(table.column("id").to_pylist(), table.column("version").to_pylist(), answered, shadow)


def _folder(state: Path, version: str) -> Path:
    return state / "shadows" / version


def _place(state: Path, version: str) -> Path:
    return _folder(state, version).with_suffix(".json")
