"""A shadow: `python -m tasks.serve.shadow ROOT MODEL NUMBER` answers what is in the prediction log.

It goes over the last predictions first, then follows the log as the compactor fills it. What it said lies in the
project's state (`tasks/runtime/shadows.py`); `loopline release` compares.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models.data.log_names import INPUT, RAW
from models.errors import DataError, LooplineError
from models.export.names import PREDICTION, PROBABILITIES
from models.serving.served import Served
from tasks.runtime.part_log import PartLog
from tasks.runtime.predictions import prediction_log
from tasks.runtime.shadows import MOST_COMPARED, place_of, set_place, shadow_log
from tasks.runtime.workspace import Workspace

PAUSE_S = 1.0
NICE = 10
BATCH_ROWS = 4096
APPENDS_AT_ONCE = 256

_log = logging.getLogger("loopline.serve")


def answer_new(state: Path, served: Served) -> int:
    """Answer what came into the log since the last time; how many rows. Killed and done again, no row counts twice.

    Raises:
        StoreError: The log cannot be read or written.
    """
    log, version = prediction_log(state), served.version
    place = place_of(state, version)
    place = _beginning(log) if place is None else place
    upto = min(log.cursor(), place + APPENDS_AT_ONCE)
    if upto <= place:
        return 0
    tables, notes = [], []
    for table in log.scan(place, upto, batch=BATCH_ROWS):
        mine = table.filter(pa.compute.not_equal(table.column("version"), version))
        if mine.num_rows:
            try:
                tables.append(_answered(mine, served))
            except DataError as error:
                notes.append(f"{mine.num_rows} rows could not be answered: {error}")
    if tables:
        shadow_log(state, version).append(pa.concat_tables(tables).sort_by("at"), f"{place}-{upto}")
    set_place(state, version, upto, notes[-1] if notes else "")
    return sum(table.num_rows for table in tables)


def _beginning(log: PartLog) -> int:
    """The cursor before the last rows."""
    rows, place = 0, log.cursor()
    for part in reversed(log.parts()):
        if rows >= MOST_COMPARED:
            break
        rows, place = rows + part.rows, part.first - 1
    return place


def _answered(table: pa.Table, served: Served) -> pa.Table:
    columns = {port.name: _values(table, port.name) for port in served.inputs}
    outputs = served.answer(served.reader.of_columns(columns).feed).outputs
    many = PREDICTION not in outputs and served.preparation.task != "binary"
    if PREDICTION in outputs:
        scores = outputs[PREDICTION].astype(np.float64)
    else:
        scores = outputs[PROBABILITIES].astype(np.float64)
        scores = scores if many else scores[:, 1]
    nothing = pa.nulls(table.num_rows)
    told = {name: table.column(name) for name in ("id", "at", "version", "score", "scores")}
    return pa.table(
        {
            **told,
            "shadow.score": nothing.cast(pa.float64()) if many else pa.array(scores),
            "shadow.scores": pa.array(scores.tolist(), pa.list_(pa.float64()))
            if many
            else nothing.cast(pa.list_(pa.float64())),
        }
    )


def _values(table: pa.Table, name: str) -> list[Any]:
    """A column as callers send it: missing values are None."""
    for prefix in (INPUT, RAW):
        if f"{prefix}{name}" in table.column_names:
            values = table.column(f"{prefix}{name}").to_pylist()
            return [None if value == "" or value != value else value for value in values]
    raise DataError(f"the prediction log does not hold the input {name!r}: a shadow needs all of them, none redacted")


def main() -> None:
    """Answer until ended."""
    root, model, version = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    os.nice(NICE)
    workspace = Workspace(Path(root))
    served = Served(model, version, workspace.cache / "models" / model / version)
    state = workspace.state / "projects" / model
    while True:
        try:
            rows = answer_new(state, served)
        except (LooplineError, OSError) as error:
            _log.error("%s: the shadow waits: %s", model, error)
            rows = 0
        if not rows:
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
