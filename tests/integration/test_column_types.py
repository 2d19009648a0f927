"""A column of every type goes the whole way: ingested, predicted in batch and over HTTP, labelled, learnt from."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data.preparation import Preparation
from models.project_spec.reader import read_spec
from models.scaffold.table import guess_spec
from tasks.host.workspace import Project, Workspace
from tasks.loop.lifecycle import open_stage
from tasks.operations.label import accept
from tasks.operations.predict import predict
from tasks.state.ingest_segments import move
from tasks.steps.ingest import ingest
from tasks.steps.prepare import prepare
from tests.column_types import ROWS, typed_columns
from tests.served_models import write_served
from tests.serving import crown, live_server

TABLE = typed_columns()
ROUNDED = {"uint64"}
"""Inputs are logged as the graph takes them: past 2 ** 53 float64 does not hold every whole number."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Whose champion takes every column that a model can."""
    workspace = Workspace(tmp_path_factory.mktemp("types"))
    workspace.make()
    made = Project(workspace, workspace.root / "projects" / "tiny")
    made.folder.mkdir(parents=True)
    pq.write_table(TABLE, made.folder / "typed.parquet")
    made.spec_path.write_text(guess_spec(made.folder / "typed.parquet", "tiny", "y"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workspace.state / 'mlflow' / 'mlflow.db'}")
        with open_stage(made) as loop:
            ingest(loop)
            prepare(loop)
        write_served(workspace.cache / "models" / "tiny" / "1", preparation=Preparation.load(made.prepared))
        crown(workspace, "tiny")
        yield made


def as_json(value: Any) -> Any:
    """A value as a caller of HTTP writes it, who has no types but JSON's: `0.5`, `"2026-01-01"`, bytes in base64."""
    if value is None or isinstance(value, str | bool | int | list | dict):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "__float__"):
        return None if float(value) != float(value) else float(value)
    return str(value)


def test_every_type_is_predicted_in_batch_and_over_http_labelled_and_learnt_from(project: Project) -> None:
    """No labelled row is lost, though one came with the source's own types and the other with those of JSON."""
    spec = read_spec(project.spec_path)
    told = predict(project, spec, project.folder / "typed.parquet", project.folder / "out.parquet")
    assert told["logged"] == ROWS
    batch = pq.read_table(told["out"])
    labels = TABLE.column("y")
    assert accept(project, spec, pa.table({"id": batch.column("id"), "label": labels}), labeller="Ada")["taken"] == ROWS
    ids = [f"h{number}" for number in range(ROWS)]
    rows = [{name: as_json(row[name]) for name in row if name != "y"} for row in TABLE.to_pylist()]
    with live_server(project.workspace, "tiny") as server:
        answer = server.post("/invocations", {"dataframe_records": rows, "ids": ids}).ok().json["predictions"]
        given = [{"id": one, "label": label} for one, label in zip(ids, labels.to_pylist(), strict=True)]
        assert server.post("/feedback", given).ok().json["accepted"] == ROWS
    assert [one["label"] for one in answer] == batch.column("label").to_pylist()
    chances = [one["probability_yes"] for one in answer]
    assert chances == pytest.approx(batch.column("probability_yes").to_pylist(), abs=1e-6)
    move(project.state("tiny"))
    with open_stage(project) as loop:
        record, _ = ingest(loop)
    assert record.result["feedback"] == {"joined": 2 * ROWS, "known": 0, "unfit": 0, "rejected": 0, "other": 0}
    table = pq.read_table(project.raw)
    for name in set(table.column_names) - ROUNDED:
        values = [None if value == "" or value != value else value for value in table.column(name).to_pylist()]
        source, in_batch, over_http = (values[at * ROWS :][:ROWS] for at in range(3))
        assert in_batch == over_http == source, name
