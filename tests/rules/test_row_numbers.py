"""The rule: every message counts rows in one way. The first row of the data is row 1; the header is no row."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.backtest.periods import LabelClock, cut_periods, parse_cut
from models.data.prepare import prepare_table
from models.errors import LooplineError
from models.export.parity import parity
from models.inference.predict import predict
from models.inference.table import TableSchema
from models.project_spec.blocks import Data, Spec
from models.serving.feedback import checked
from models.serving.mlflow_scoring import scoring_of_csv
from models.sources.read import read_source
from models.sources.row_batches import row_batches
from models.validation.labels import checked_labels
from models.validation.mixed_columns import odd_cells
from tests.finished_jobs import table_preparation
from tests.unit.models.inference.test_predict import feed, written

ROW, ROWS = 50, 60
"""The bad row, counted from 1, and the number of rows."""
PREPARATION = table_preparation()


def _csv(folder: Path, bad: str, good: str = "1,x", end: str = "\n") -> Path:
    lines = ["a,b", *[good] * (ROW - 1), bad, *[good] * (ROWS - ROW)]
    (folder / "rows.csv").write_text("\n\n" + end.join(lines) + end)
    return folder / "rows.csv"


def _with_bad(good: object, bad: object, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([good] * (ROW - 1) + [bad] + [good] * (ROWS - ROW), kind)


def _prepared(**columns: pa.Array) -> None:
    """Prepare rows of which every third of the first thirty lacks the target."""
    target: list[str | None] = ["u", "v"] * (ROWS // 2)
    target[0:30:3] = [None] * 10
    spec = Spec.model_validate({"name": "a", "data": {"source": "a.csv", "target": "y", "split": {"by": "random"}}})
    prepare_table(pa.table({"n": range(ROWS), **columns, "y": target}), spec, Path())


def _rows(**columns: object) -> pa.Table:
    given = {"größe (m)": 1.5, "n/1": 3.0, "city": "東京", "month": 12, "is late": True}
    return pa.table({**{name: [value] * ROWS for name, value in given.items()}, **columns})


def _worst(folder: Path) -> None:
    path, preparation = written(folder, "binary")
    expected = predict(path, [feed(ROWS)], preparation)
    expected[ROW - 1] += 0.5
    parity(path, [feed(ROWS)], expected, preparation)


def _odd(folder: Path) -> None:
    del folder
    (message,) = odd_cells(pa.table({"a": _with_bad("1", "unknown")}), Data(source="a.csv", target="y"))
    raise LooplineError(message)


def _periods(folder: Path) -> None:
    del folder
    times = np.arange(2.0 * (ROW - 1))
    (_, second) = cut_periods(LabelClock(times, has_calendar=False), parse_cut(f"{ROW - 1} rows"))
    raise LooplineError(second.name)


PLACES: dict[str, Callable[[Path], object]] = {
    "a short row, new and ingest": lambda folder: read_source(_csv(folder, "1")),
    "a short row, with line breaks in cells": lambda folder: read_source(_csv(folder, "1", '1,"x\n\ny"')),
    "a short row, predict and label": lambda folder: list(row_batches([_csv(folder, "1")], {}, 7)),
    "a short row, serve": lambda folder: scoring_of_csv(_csv(folder, "1").read_bytes()),
    "a value of another type, predict": lambda folder: list(
        row_batches([_csv(folder, "q,x", end="\n\n")], {"a": pa.float64()}, 7)
    ),
    "a mixed column, ingest": _odd,
    "an infinite number, prepare": lambda folder: _prepared(x=_with_bad(1.5, np.inf)),
    "an infinite number, predict": lambda folder: TableSchema(PREPARATION).from_arrow(
        _rows(**{"n/1": _with_bad(1.5, np.inf)})
    ),
    "a time of no year, prepare": lambda folder: _prepared(x=_with_bad(1, 2**55, pa.int64()).cast(pa.timestamp("s"))),
    "a label, file": lambda folder: checked_labels(
        pa.table({"id": [f"{row}" for row in range(ROWS)], "y": _with_bad("ja", "jo")}), "id", PREPARATION, "rows"
    ),
    "a label, feedback": lambda folder: checked(
        [{"id": f"{row}", "y": value} for row, value in enumerate(_with_bad("ja", "jo").to_pylist())], PREPARATION
    ),
    "the worst row, export": _worst,
    "a period of rows, backtest": _periods,
}


@pytest.mark.parametrize("place", PLACES)
def test_the_fiftieth_row_is_row_50_everywhere(place: str, tmp_path: Path) -> None:
    with pytest.raises(LooplineError) as caught:
        PLACES[place](tmp_path)
    found = re.search(r"rows? (\d+)", str(caught.value))
    assert found is not None, str(caught.value)
    assert int(found[1]) == ROW, str(caught.value)


def test_rows_of_a_later_part_count_on() -> None:
    table = _rows(**{"n/1": _with_bad(1.5, np.inf)}).slice(40)
    with pytest.raises(LooplineError, match=r"row 50, column 'n/1'"):
        TableSchema(PREPARATION).from_arrow(table, 41)
