"""A shadow: `python -m tasks.release.shadow ROOT MODEL NUMBER` predicts the rows of the prediction log again.

It processes the last predictions first, then follows the log as the compactor fills it. Its predictions are stored in
the project's state (`tasks/state/shadows.py`); `loopline release` compares them with the served ones.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from models.errors import DataError, LooplineError
from models.feedback.columns import INPUT, RAW, SENT
from models.inference.batch import score_columns
from models.inference.loaded_model import LoadedModel
from models.inference.names import scores_of
from models.inference.predict import Feed
from tasks.host import logs as json_lines
from tasks.host.workspace import Workspace
from tasks.state.delta.delta_log import DeltaLog
from tasks.state.predictions import prediction_log
from tasks.state.shadows import MOST_COMPARED, PREDICTIONS, place_of, set_place, shadow_log, tidy

PAUSE_S = 1.0
NICE = 10
BATCH_ROWS = 4096
APPENDS_AT_ONCE = 256

_log = logging.getLogger("loopline.serve")


def answer_new(state: Path, served: LoadedModel) -> int:
    """Predict the rows logged since the last call; return how many. No row counts twice, even after a kill.

    Raises:
        StoreError: The log cannot be read or written.
    """
    log, version = prediction_log(state), served.version
    shadow_answers, place = shadow_log(state, version), place_of(state, version)
    place = max(_beginning(log) if place is None else place, shadow_answers.offsets([PREDICTIONS])[PREDICTIONS])
    upto = min(log.cursor(), place + APPENDS_AT_ONCE)
    if upto <= place:
        return 0
    tables, notes = [], []
    for table in log.scan(place, upto, batch=BATCH_ROWS):
        mine = table.filter(pa.compute.not_equal(table.column("version"), version))
        if mine.num_rows:
            try:
                tables.append(_answered(mine, served))
                if tables[-1].num_rows < mine.num_rows:
                    notes.append(f"{mine.num_rows - tables[-1].num_rows} rows came before there was a shadow")
            except DataError as error:
                notes.append(f"{mine.num_rows} rows could not be answered: {error}")
    if tables:
        shadow_answers.append(pa.concat_tables(tables).sort_by("at"), offsets={PREDICTIONS: upto})
        tidy(shadow_answers)
    set_place(state, version, upto, notes[-1] if notes else "")
    return sum(table.num_rows for table in tables)


def _beginning(log: DeltaLog) -> int:
    """Return the cursor before the last rows, at least MOST_COMPARED of them if the log has so many."""
    rows, place = 0, log.cursor()
    for part in reversed(log.parts()):
        if rows >= MOST_COMPARED:
            break
        rows, place = rows + part.rows, part.first - 1
    return place


def _answered(table: pa.Table, served: LoadedModel) -> pa.Table:
    table, feed = _loggable(table, served)
    scores = scores_of(served.answer(feed).outputs, served.preparation.task)
    columns = {name: table.column(name) for name in ("id", "at", "version", "score", "scores")}
    return pa.table({**columns, **{f"shadow.{name}": values for name, values in score_columns(scores).items()}})


def _loggable(table: pa.Table, served: LoadedModel) -> tuple[pa.Table, Feed]:
    """Return the rows whose inputs are complete in the log, and these inputs.

    Raises:
        DataError: The log holds no complete row.
    """
    preparation, schema = served.preparation, served.schema
    if preparation.window is not None:
        names = [f"{SENT}{name}" for name in schema.numbers]
        table = _whole(table, names)
        return table, schema.from_tensors({"series": _windows(table, names, preparation.window.length)}).feed
    if preparation.kind != "table":
        table = _whole(table, [f"{SENT if preparation.kind == 'text' else RAW}{name}" for name in schema.columns])
    return table, schema.from_arrow(pa.table({name: _column(table, name) for name in schema.columns}))


def _whole(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the rows that have all of these columns; rows logged before there was a shadow lack some."""
    for name in names:
        if name not in table.column_names:
            raise _lacks(name.partition(".")[2])
        table = table.filter(table.column(name).is_valid())
    if not table.num_rows:
        raise _lacks(names[0].partition(".")[2])
    return table


def _windows(table: pa.Table, names: list[str], length: int) -> np.ndarray:
    """Return windows (row, length, feature): the last steps of the logged windows."""
    features = []
    for name in names:
        windows = [np.frombuffer(window, "<f8") for window in table.column(name).to_pylist()]
        shortest = min(map(len, windows))
        if shortest < length:
            raise DataError(f"the log holds windows of {shortest} steps: this version looks at {length}")
        features.append([window[-length:] for window in windows])
    return np.ascontiguousarray(np.array(features).transpose(1, 2, 0))


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    for prefix in (INPUT, RAW, SENT):
        if f"{prefix}{name}" in table.column_names:
            return table.column(f"{prefix}{name}")
    raise _lacks(name)


def _lacks(name: str) -> DataError:
    return DataError(f"the prediction log does not hold the input {name!r}: a shadow needs all of them, none redacted")


def main() -> None:
    """Predict new rows until the process is ended."""
    root, model, version = sys.argv[1:]
    json_lines.to_stderr()
    os.nice(NICE)
    workspace = Workspace(Path(root))
    served = LoadedModel(model, version, workspace.cache / "models" / model / version)
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
