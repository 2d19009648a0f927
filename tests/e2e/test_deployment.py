"""What is served: a smaller variant where the spec lets it, judged, registered, explained, and taken elsewhere."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.host.workspace import Workspace
from tests.e2e.conftest import SPEC
from tests.running import Loopline
from tests.serving import live_server

pytestmark = [pytest.mark.e2e, pytest.mark.wide]

ROW = {
    "bill_length_mm": 39.1,
    "bill_depth_mm": 18.7,
    "flipper_length_mm": 181,
    "body_mass_g": 3750,
    "island": "Torgersen",
    "sex": "male",
    "year": 2007,
}
SMALL = ("-s", "search.trials=0", "-s", "serve.max_metric_loss=0.5", "-s", "serve.variants=[int8_dynamic]")


@pytest.fixture(scope="module")
def home(make_home) -> Loopline:
    """A workspace whose champion serves eight-bit weights: in wide layers these are faster too."""
    made = make_home("deployment")
    made.project("small", SPEC.replace("layers: 1, hidden: 16", "layers: 2, hidden: 1024"))
    told = made("run", "small", *SMALL, "--json").ok().json
    assert told["decision"] == "promote"
    return made


def version_folder(home: Loopline) -> Path:
    home("export", "small", "--to", str(home.home / "edge")).ok()  # brings it into the cache
    return Workspace(home.home).cache / "models" / "small" / "1"


def test_what_the_spec_lets_go_is_served_judged_and_said(home: Loopline):
    folder = version_folder(home)
    sizes = {name: (folder / name).stat().st_size for name in ("model.onnx", "model.fp32.onnx")}
    assert sizes["model.onnx"] < 0.4 * sizes["model.fp32.onnx"]
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["challenger_cost"]["size_mb"] == pytest.approx(sizes["model.onnx"] / 1e6)
    with contextlib.closing(sqlite3.connect(home.home / ".loopline" / "mlflow" / "mlflow.db")) as store:
        tags = dict(store.execute("select key, value from model_version_tags"))
    assert tags["loopline.served"] == "int8_dynamic"
    assert [each["name"] for each in json.loads(tags["loopline.variants"])] == ["fp32", "int8_dynamic"]
    assert {"model.onnx", "model.fp32.onnx", "background.json"} <= set(json.loads(tags["loopline.files"]))
    card = (home.home / ".loopline" / "projects" / "small" / "card.html").read_text()
    assert "<h3>Variants</h3>" in card
    assert "✓ served" in card


def test_a_limit_that_changes_measures_again_and_trains_nothing(home: Loopline):
    told = home("plan", "small", *SMALL[:2], "--json").ok().json
    states = {item["step"]: item["state"] for item in told}
    assert (states["train"], states["export"]) == ("done", "run")
    assert {item["state"] for item in home("plan", "small", *SMALL, "--json").ok().json} == {"done"}


def test_server_and_bundle_say_the_same_and_the_server_says_why(home: Loopline):
    rows = home.home / "row.json"
    rows.write_text(json.dumps(ROW))
    version_folder(home)
    script = subprocess.run(
        [sys.executable, str(home.home / "edge" / "predict.py"), str(rows)], capture_output=True, text=True, check=True
    )
    elsewhere = json.loads(script.stdout)
    with live_server(Workspace(home.home), "small") as server:
        told = server.post("/invocations?explain=1", {"dataframe_records": [ROW]}).ok().json
    (answer,), (why,) = told["predictions"], told["explanations"]
    assert answer["label"] == elsewhere["label"] == "Adelie"
    assert answer["probability_Adelie"] == pytest.approx(elsewhere["probability_Adelie"])
    assert why["of"] == "probability_Adelie"
    assert why["base"] + sum(why["contributions"].values()) == pytest.approx(answer["probability_Adelie"])
    assert set(why["contributions"]) <= set(ROW)
