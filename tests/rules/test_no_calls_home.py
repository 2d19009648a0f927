"""No library calls home: no process of ours looks up a name, or speaks to an address, that nobody has configured."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.export.bundle import bundle, portable_code
from models.inference.loaded_model import LoadedModel
from models.inference.portable import MODEL_FILE, NO_TELEMETRY, open_session
from tests.running import Loopline
from tests.served_models import write_served
from tests.serving import crown, live_server
from tests.traced import can_trace, network_traced, places_outside

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here"),
]

WAIT_S = 13
"""ONNX Runtime 1.31.1 looks up its maker's collector 9 s after it was imported."""
IDLE = f"\nimport time; time.sleep({WAIT_S})\n"
PYFUNC = """
import sys, pandas, mlflow.pyfunc
print(mlflow.pyfunc.load_model(sys.argv[1]).predict(pandas.DataFrame({"x": [1.0], "c": ["u"]})).to_json())
"""


def quiet(folder: Path) -> dict[str, str]:
    """The environment of a process of the user's own, who has silenced his MLflow and nothing else."""
    own = {key: value for key, value in os.environ.items() if key != NO_TELEMETRY}
    return {**own, "MLFLOW_DISABLE_TELEMETRY": "true", "TMPDIR": str(folder)}


def mlflow_model(folder: Path) -> Path:
    """A model of MLflow as a registered version is one."""
    code = portable_code()
    loader = next(iter(code)).removesuffix(".py")
    flavour = {"loader_module": loader, "code": "code", "data": MODEL_FILE, "python_version": "3"}
    (folder / "code").mkdir(parents=True)
    for name, text in code.items():
        (folder / "code" / name).write_text(text, encoding="utf-8")
    (folder / "MLmodel").write_text(json.dumps({"flavors": {"python_function": flavour}}))
    return folder


@contextlib.contextmanager
def asked(folder: Path, *command: str, environ: dict[str, str]) -> Iterator[None]:
    """A traced command beside the block, which ends well after it."""
    process = subprocess.Popen([*network_traced(folder / "trace"), *command], env=environ, cwd=folder)
    try:
        yield
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


def test_the_tracer_sees_a_lookup(tmp_path):
    code = "import socket\ntry: socket.getaddrinfo('collector.example.org', 443)\nexcept OSError: pass"
    with asked(tmp_path, sys.executable, "-c", code, environ=dict(os.environ)):
        pass
    assert "collector.example.org" in places_outside(tmp_path / "trace")


def test_what_opens_a_graph_has_its_library_silenced_and_keeps_what_a_person_set(monkeypatch, tmp_path):
    write_served(tmp_path)
    for before, after in ((None, "1"), ("0", "0")):
        monkeypatch.delenv(NO_TELEMETRY, raising=False)
        if before is not None:
            monkeypatch.setenv(NO_TELEMETRY, before)
        open_session(tmp_path / MODEL_FILE)
        assert os.environ[NO_TELEMETRY] == after


@pytest.mark.wide
def test_neither_server_nor_bundle_nor_mlflows_model_looks_anything_up(workspace, tmp_path):
    crown(workspace, "tiny")
    bundled, logged, served = (tmp_path / name for name in ("bundle", "pyfunc", "served"))
    served.mkdir()
    for folder in (bundled, mlflow_model(logged)):
        write_served(folder)
    for name, text in bundle(LoadedModel("tiny", "1", bundled), {}).items():
        (bundled / name).write_text(text, encoding="utf-8")
    with (bundled / "predict.py").open("a") as script:
        script.write(IDLE)
    with (  # the server lives longest
        live_server(workspace, "tiny", tracer=network_traced(served / "trace"), TMPDIR=str(served)) as server,
        asked(bundled, sys.executable, "predict.py", "example.json", environ=quiet(bundled)),
        asked(logged, sys.executable, "-c", PYFUNC + IDLE, str(logged), environ=quiet(logged)),
    ):
        server.post("/invocations", {"dataframe_records": [{"x": 1, "c": "u"}]}).ok()
    assert {folder.name: places_outside(folder / "trace") for folder in (bundled, logged, served)} == {
        "bundle": set(), "pyfunc": set(), "served": set()
    }  # fmt: skip


@pytest.mark.soak
def test_no_step_of_a_loop_looks_anything_up(tmp_path):
    home = Loopline(tmp_path / "home")
    home.project("penguins", "data:\n  source: penguins.csv\n  target: species\nsearch: {trials: 1}\n")
    command = [*network_traced(tmp_path / "trace"), str(Path(sys.executable).with_name("loopline")), "run", "penguins"]
    try:
        environ = {**home.environment, "TMPDIR": str(tmp_path)}
        done = subprocess.run(command, env=environ, cwd=home.home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    finally:
        home.stop()
    assert places_outside(tmp_path / "trace") == set()
    assert list(tmp_path.rglob(".ses")) == []
