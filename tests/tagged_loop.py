"""A table with tags through the stages of the loop, in a copy of the product that has the recipe's kind of column.

`tests/contract/test_contributing.py` follows the recipe and has pytest run this file in the copy; here there is no such
kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml
from safetensors.numpy import load_file

from models.data.encode import write_tensors
from models.data.feeds import feeds
from models.data.preparation import Preparation
from models.data.prepare import prepare
from models.export.export import export
from models.inference.loaded_model import LoadedModel
from models.monitoring.build import build
from models.project_spec.reader import read_spec
from models.report.inputs import input_rows
from models.scaffold.table import guess_spec
from models.training.job import TrainingJob
from tasks.host import ports
from tasks.host.workspace import Project, Workspace
from tasks.operations import monitor
from tasks.serve.grpc.messages import SERVICE, message
from tasks.tools.sources import ingest
from tests.goal_jobs import fitted
from tests.serving import LiveServer, crown, live_server

NAME = "toys"
TAGS = ("a.b", "big", "red", "round", "été")
ROWS = 300
ASKED = [{"x": 0.5, "tags": "red;round"}, {"x": 0.5, "tags": "new"}, {"x": None, "tags": None}]
"""Known tags, one that training has not seen, and none."""


@dataclass(frozen=True)
class Loop:
    """What the stages left: the project, the finished job, the export's record and folder."""

    project: Project
    job: TrainingJob
    record: dict[str, object]
    out: Path


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    workspace = Workspace(tmp_path_factory.mktemp("tags"))
    workspace.make()
    folder = workspace.root / "projects" / NAME
    folder.mkdir(parents=True)
    pyarrow.csv.write_csv(table(), folder / "data.csv")
    (folder / "project.yaml").write_text(guess_spec(folder / "data.csv", NAME, "y", "data.csv"))
    project = workspace.project(NAME)
    spec = read_spec(project.spec_path)
    pa.parquet.write_table(ingest(spec, folder, workspace.cache), folder / "raw.parquet")
    prepare(folder / "raw.parquet", spec, folder, folder / "prepared")
    (folder / "tensors").mkdir()
    files = write_tensors(folder / "prepared", folder / "tensors")
    job = fitted(folder / "job", (spec, files), "mlp", {"hidden": 16}, epochs=20, lr=0.02, threads=1)
    out = workspace.cache / "models" / NAME / "1"
    out.mkdir(parents=True)
    record = export(job.as_json(), str(out), {"loopline.project": NAME})
    build(job.prepared, out / "model.onnx", Preparation.load(out)).save(out)
    crown(workspace, NAME)
    return Loop(project, job, record, out)


def table() -> pa.Table:
    draw = np.random.default_rng(0)
    chosen = [[tag for tag in TAGS if draw.random() < 0.4] for _ in range(ROWS)]
    tags = [None if row % 50 == 0 else ";".join(own) for row, own in enumerate(chosen)]
    answers = ["yes" if "red" in own else "no" for own in chosen]
    return pa.table({"x": draw.normal(size=ROWS), "tags": tags, "y": answers})


@pytest.fixture(scope="module")
def port() -> int:
    return ports.any_free([])


@pytest.fixture(scope="module")
def server(loop: Loop, port: int) -> Iterator[LiveServer]:
    workspace = loop.project.workspace
    with live_server(workspace, NAME, arguments=("--grpc-port", str(port)), cold=True) as live:
        yield live


def tensor_in_graph(path: Path, name: str, feed: dict[str, np.ndarray]) -> np.ndarray:
    model = onnx.load(path)
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (tensor,) = session.run([name], feed)
    return np.asarray(tensor)


def test_a_first_spec_names_the_kind(loop: Loop) -> None:
    spec = yaml.safe_load(loop.project.spec_path.read_text())
    assert spec["data"]["features"]["kinds"] == {"tags": "tags"}


def test_the_graph_encodes_as_training_does_and_answers_as_the_net(loop: Loop) -> None:
    preparation = Preparation.load(loop.out)
    (feed,) = feeds(loop.job.prepared, "validation", preparation)
    encoded = tensor_in_graph(loop.out / "model.onnx", "core/numeric", feed)
    tensors = load_file(loop.job.tensors["validation"])
    np.testing.assert_array_equal(encoded, tensors["numeric"])
    assert set(tensors["numeric"][:, 1:].ravel()) == {0.0, 1.0}
    assert float(str(loop.record["max_difference"])) < 1e-5


def test_the_card_names_it(loop: Loop) -> None:
    rows = input_rows(Preparation.load(loop.out))
    assert rows[-1] == {"input": "tags", "kind": "tags", "values": f"{len(TAGS)} tags"}


def test_it_is_served_over_http_and_grpc(loop: Loop, server: LiveServer, port: int) -> None:
    expected = LoadedModel(NAME, "1", loop.out).schema.from_records(ASKED)
    chances = LoadedModel(NAME, "1", loop.out).answer(expected.feed).outputs["probabilities"]
    told = server.post("/invocations", {"dataframe_records": ASKED}).ok().json["predictions"]
    assert [row["probability_yes"] for row in told] == pytest.approx(chances[:, 1].tolist(), abs=1e-6)
    assert chances[0, 1] > 0.5 > chances[1, 1]
    request = message("ModelInferRequest")(model_name=NAME)
    numbers = request.inputs.add(name="x", datatype="FP64", shape=[len(ASKED)])
    numbers.contents.fp64_contents.extend(np.nan if row["x"] is None else row["x"] for row in ASKED)
    texts = request.inputs.add(name="tags", datatype="BYTES", shape=[len(ASKED)])
    texts.contents.bytes_contents.extend(str(row["tags"] or "").encode() for row in ASKED)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=message("ModelInferRequest").SerializeToString,
            response_deserializer=message("ModelInferResponse").FromString,
        )
        answer = infer(request, timeout=20)
    (labels,) = [output.contents.bytes_contents for output in answer.outputs if output.name == "label"]
    assert [label.decode() for label in labels][:2] == ["yes", "no"]


def test_it_is_monitored(loop: Loop, server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = loop.project.workspace.state / "mlflow" / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{registry}")
    strange = [{"x": 0.0, "tags": ";".join(TAGS * 3)}] * 60
    server.post("/invocations", {"dataframe_records": strange}).ok()
    report = monitor.look(loop.project, read_spec(loop.project.spec_path))
    (window,) = report.windows
    (drift,) = [column for column in window.features if column.name == "tags"]
    assert drift.outside > 0.9
