"""MLflow's scoring protocol by a live server: every form, what is refused, what OpenAPI says, what is not imported."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton

from tasks.host import ports
from tasks.host.workspace import Workspace
from tests.serving import LiveServer, crown, live_server

NEVER = ("torch", "mlflow", "pandas", "pyarrow", "scipy", "prefect", "onnx", "matplotlib", "sklearn", "optuna", "dvc")
TELLS = """\
import json, os, signal, sys
def tell(*_):
    path = os.path.join(os.environ["TELL_MODULES"], str(os.getpid()))
    with open(path + ".part", "w") as file:
        json.dump(sorted(sys.modules), file)
    os.rename(path + ".part", path)
signal.signal(signal.SIGRTMIN, tell)
"""
"""Every process of a server tells on a signal what it has imported."""
ROW = {"x": 1, "c": "u"}
YES = {"label": "yes", "probability_no": pytest.approx(0.26894142), "probability_yes": pytest.approx(0.73105858)}
PATH = "/models/tiny/invocations"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    workspace = Workspace(tmp_path_factory.mktemp("serve"))
    workspace.make()
    crown(workspace, "tiny")
    for task in ("image", "series", "language"):
        crown(workspace, task, "1", task)
    with live_server(workspace, "tiny", "image", "series", "language") as live:
        yield live


def test_a_server_says_that_it_is_there_and_what_answers(server: LiveServer) -> None:
    """As MLflow's client and its container's health check ask."""
    assert server.get("/ping").status == server.get("/health").status == 200
    assert server.get("/version").ok().json["tiny"]["stable"] == "1"


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_records": [ROW, ROW]},
        {"dataframe_split": {"columns": ["c", "x"], "index": [0, 1], "data": [["u", 1], ["u", 1.0]]}},
        {"instances": [ROW, ROW]},
        {"inputs": {"x": [1, 1], "c": ["u", "u"]}},
        [ROW, ROW],
    ],
)
def test_every_form_is_answered_by_rows(server: LiveServer, body: Any) -> None:
    told = server.post(PATH, body).ok()
    assert told.json["predictions"] == [YES, YES]
    assert len(set(told.json["ids"])) == 2
    assert (told.json["model"], told.json["version"], told.headers["x-loopline-version"]) == ("tiny", "1", "1")


def test_one_record_and_csv_will_do(server: LiveServer) -> None:
    assert server.post(PATH, {**ROW, "note": "kept"}).ok().json["predictions"] == [YES]
    csv = server.ask("POST", PATH, b"c,x\nu,1\nv,\n", {"Content-Type": "text/csv; charset=utf-8"})
    assert csv.ok().json["predictions"][0] == YES
    assert csv.json["predictions"][1]["probability_yes"] == 0.5


def test_the_caller_may_name_rows_and_requests(server: LiveServer) -> None:
    assert server.post(PATH, {"inputs": [ROW, ROW], "ids": ["a", "b"]}).ok().json["ids"] == ["a", "b"]
    assert server.ask("POST", PATH, ROW, {"X-Request-Id": "r1"}).ok().json["ids"] == ["r1"]


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("image", {"instances": [[[0, 0, 0], [0, 0, 0]]]}, {"label": "no"}),
        ("image", {"picture": "AAAAAAAA"}, {"label": "no"}),
        ("series", [{"x": step, "y": 0} for step in range(3)], {"prediction": 3.0}),
        ("series", {"inputs": [[[0, 0], [1, 0], [2, 0]]]}, {"prediction": 3.0}),
        ("language", {"line": "ab"}, {"next_character": "c"}),
        ("language", {"instances": ["ab"]}, {"next_character": "c"}),
    ],
)
def test_models_of_every_kind_answer(server: LiveServer, name: str, body: Any, expected: dict[str, Any]) -> None:
    (prediction,) = server.post(f"/models/{name}/invocations", body).ok().json["predictions"]
    assert {key: prediction[key] for key in expected} == expected


DEEP = b"[" * 600 + b"]" * 600


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {}, 400),
        (b'{"x": NaN, "c": Infinity}', {}, 400),
        (b'{"x": 1e400, "c": "u"}', {}, 400),
        (b"[" * 10**5, {}, 400),
        (b'{"x": 1, "c": ' + DEEP + b"}", {}, 400),
        (b'{"x": 1, "c": "u", "note": ' + DEEP + b"}", {}, 400),
        (b'{"x": ' + DEEP + b', "c": "u"}', {}, 400),
        (b'{"inputs": ' + DEEP + b"}", {}, 400),
        (b'{"inputs": [], "params": ' + DEEP + b"}", {}, 400),
        (b"5", {}, 400),
        (b"x,c\n1", {"Content-Type": "text/csv"}, 400),
        (b'{"x": 1, "c": "u"}', {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b'{"x": 1, "c": "u"}', {"Content-Type": "application/xml"}, 415),
        (b'{"x": 1, "c": "u"}', {"Content-Encoding": "br"}, 415),
        (b'{"x": 1, "c": "u"}', {"Content-Encoding": "gzip"}, 400),
        (b'{"x": 1, "c": "u"}', {"X-Request-Id": "a" * 201}, 400),
    ],
)
def test_a_bad_body_is_the_callers_mistake(
    server: LiveServer, body: bytes, headers: dict[str, str], status: int
) -> None:
    reply = server.ask("POST", PATH, body, headers)
    assert (reply.status, list(reply.json)) == (status, ["error"]), reply.body
    assert str(Path(__file__).parents[2]) not in reply.json["error"]


@pytest.mark.parametrize("name", ["image", "series", "language"])
@pytest.mark.parametrize("form", [b"%s", b'{"inputs": %s}', b'{"instances": [%s]}', b'{"inputs": {"image": [%s]}}'])
def test_depth_does_no_harm_to_any_kind(server: LiveServer, name: str, form: bytes) -> None:
    reply = server.ask("POST", f"/models/{name}/invocations", form % DEEP)
    assert (reply.status, list(reply.json)) == (400, ["error"]), reply.body


def test_what_is_not_there_is_told_with_what_is(server: LiveServer) -> None:
    for path in ("/models/no/invocations", "/invocations"):
        reply = server.post(path, ROW)
        assert reply.status == 404
        assert "tiny" in reply.json["error"]
    assert server.get(PATH).status == 405


def test_nothing_failed_on_the_way(server: LiveServer) -> None:
    assert "Traceback" not in server.printed, server.printed[-4000:]


@pytest.mark.wide
def test_schemathesis_finds_nothing(server: LiveServer, tmp_path: Path) -> None:
    """Valid data is taken, other data refused, every answer is as the document says, nothing fails."""
    program = str(Path(sys.executable).with_name("schemathesis"))
    phases = ["--phases", "coverage,fuzzing", "--max-examples", "4", "--seed", "5"]
    known = ["-H", f"Authorization: Bearer {server.token.read_text().strip()}"]  # of who may send labels
    command = [program, "run", f"{server.url}/openapi.json", *phases, *known, "--exclude-path-regex", "versions/"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "No issues found" in done.stdout, done.stdout[-3000:]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes of `alone` tell what they have imported."""
    return tmp_path_factory.mktemp("told")


@pytest.fixture(scope="module")
def grpc_port() -> int:
    return ports.any_free([])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, told: Path, grpc_port: int) -> Iterator[LiveServer]:
    """Two workers, one model, gRPC."""
    workspace = Workspace(tmp_path_factory.mktemp("alone"))
    workspace.make()
    crown(workspace, "tiny")
    (told / "sitecustomize.py").write_text(TELLS)
    arguments = ("--workers", "2", "--grpc-port", str(grpc_port))
    with live_server(workspace, "tiny", arguments=arguments, PYTHONPATH=str(told), TELL_MODULES=str(told)) as live:
        yield live


def test_mlflows_own_client_scores_a_data_frame(alone: LiveServer) -> None:
    """It sends NaN for what is missing, and its columns in any order."""
    import pandas as pd
    from mlflow.pyfunc.scoring_server.client import ScoringServerClient

    client = ScoringServerClient("127.0.0.1", alone.port)
    client.ping()
    assert json.loads(client.get_version())["tiny"]["stable"] == "1"
    rows = pd.DataFrame({"c": ["u", None, "w"], "x": [1.0, float("nan"), -1.0], "note": [1, 2, 3]})
    found = client.invoke(rows).get_predictions()
    assert list(found.columns) == ["label", "probability_no", "probability_yes"]
    assert found["label"].tolist() == ["yes", "no", "no"]
    assert found["probability_yes"].tolist() == pytest.approx([0.73105858, 0.5, 0.26894142])


def test_no_process_of_a_server_imports_what_is_heavy(alone: LiveServer, told: Path, grpc_port: int) -> None:
    """Two workers and their parent, after every address was used; both workers share the ports."""
    tensors = [
        {"name": "x", "shape": [1], "datatype": "FP64", "data": [1]},
        {"name": "c", "shape": [1], "datatype": "BYTES", "data": ["u"]},
    ]
    for _ in range(8):
        alone.post("/invocations", ROW).ok()
        alone.post("/v2/models/tiny/infer", {"inputs": tensors}).ok()
        alone.post("/feedback", {"id": "a", "label": "yes"}).ok()
        alone.get("/openapi.json").ok()
        alone.get("/metrics").ok()
        with contextlib.closing(triton.InferenceServerClient(f"127.0.0.1:{grpc_port}")) as client:
            assert client.get_model_metadata("tiny").name == "tiny"
    workers = [worker.pid for worker in alone.workers()]
    assert len(workers) == 2
    found: dict[int, set[str]] = {}

    def has_told(pid: int) -> bool:
        """A worker tells again until it is ready: the other one may have answered everything so far."""
        (told / str(pid)).unlink(missing_ok=True)
        os.kill(pid, signal.SIGRTMIN)
        alone.wait_until((told / str(pid)).exists)
        found[pid] = set(json.loads((told / str(pid)).read_text()))
        return pid == alone.process.pid or "tasks.serve.app" in found[pid]

    for pid in (alone.process.pid, *workers):
        alone.wait_until(lambda pid=pid: has_told(pid))
    assert {pid: modules & set(NEVER) for pid, modules in found.items()} == {pid: set() for pid in found}
