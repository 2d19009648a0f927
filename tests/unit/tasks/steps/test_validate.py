"""The gate: the source's rows are judged; what callers sent and labelled stops no training."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import GateRefused
from models.sources import mapped
from tasks.host.workspace import Project
from tasks.loop.lifecycle import open_stage
from tasks.loop.loop import Loop
from tasks.state.predictions import label_store, prediction_log
from tasks.steps.ingest import ingest
from tasks.steps.prepare import prepare
from tasks.steps.validate import REPORT_FILE, validate_prepared
from tests.conftest import MakeProject

EXPECTED = """\
  expectations:
    - {expect: column_values_to_be_between, on: prepared, arguments: {column: x, max_value: 1000}}
    - {expect: column_max_to_be_between, on: prepared, arguments: {column: x, max_value: 1000}}
"""


def validated(loop: Loop) -> list[tuple[str, str, bool]]:
    """Name, severity and success of each check that the spec names."""
    ingest(loop)
    prepare(loop)
    validate_prepared(loop)
    (path,) = loop.workspace.root.rglob(f"validate-prepared/*/{REPORT_FILE}")
    results = json.loads(path.read_text())["results"]
    return [(one["expectation"], one["severity"], one["success"]) for one in results if one["origin"] == "spec"]


def labelled(project: Project, x: float) -> None:
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    row = {"id": ["a"], "at": at}
    prediction_log(project.state("tiny")).append(pa.table({**row, "version": ["1"], "input.x": [x], "input.c": ["u"]}))
    label_store(project.state("tiny")).append(pa.table({**row, "label": ["yes"], "by": ["Ada"]}))


def test_a_labelled_prediction_that_breaks_what_prepared_rows_must_be_is_a_warning(make_project: MakeProject) -> None:
    project = make_project(spec=EXPECTED)
    labelled(project, 4.5e6)
    with open_stage(project) as loop:
        assert validated(loop) == [
            ("column_values_to_be_between", "reject", True),
            ("column_max_to_be_between", "reject", True),
            ("column_values_to_be_between", "warn", False),
            ("column_max_to_be_between", "warn", False),
        ]


@pytest.mark.parametrize("large", [mapped.LARGE_CELLS, pytest.param(1, marks=pytest.mark.wide)])
def test_the_sources_own_rows_are_refused(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(mapped, "LARGE_CELLS", large)  # a large table is checked in a process of its own
    rows = "x,c,y\n" + "".join(f"{i + (i == 77) * 4e6},{'uvw'[i % 3]},{'yes' if i % 4 else 'no'}\n" for i in range(200))
    project = make_project(spec=EXPECTED, rows=rows)
    labelled(project, 5.0)
    with open_stage(project) as loop, pytest.raises(GateRefused, match=r"column_values_to_be_between of 'x' \(1 rows"):
        validated(loop)
    (bad,) = project.state("tiny").glob("quarantine/*/prepared/failing_rows.parquet")
    assert pq.read_table(bad).column("x").to_pylist() == [4e6 + 77]
