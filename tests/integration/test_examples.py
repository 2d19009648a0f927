"""The examples: their specs and sources agree, the database gets each prediction once, the client speaks to a server.

`tests/e2e/test_tutorials.py` runs their loops.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from models.project_spec.reader import read_spec
from models.training.spec_check import check_spec
from tasks.host.workspace import Workspace
from tasks.operations.scaffold import examples
from tasks.tools.sources import ingest
from tests.conftest import Serve
from tests.serving import crown

EXAMPLES = Path(__file__).parents[2] / "examples"
LEAST_ROWS = 400


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(examples()))
def test_spec_and_source_of_an_example_agree(name: str, tmp_path: Path) -> None:
    folder = EXAMPLES / name
    spec = read_spec(folder / "project.yaml")
    check_spec(spec, folder)
    table = ingest(spec, folder, tmp_path)
    assert spec.data.target in table.column_names
    assert table.num_rows > LEAST_ROWS


def test_every_folder_of_examples_says_how_to_use_it() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == {*examples(), "client"}
    assert all((EXAMPLES / name / "README.md").is_file() for name in folders)


def test_a_prediction_is_in_the_database_once(tmp_path: Path) -> None:
    store = load(EXAMPLES / "batch" / "into_sqlite.py").store
    predictions = pd.DataFrame({"id": ["a", "b"], "version": ["1", "1"], "prediction": [0.5, 0.7], "bmi": [30.0, 28.0]})
    assert store(predictions, tmp_path / "p.sqlite") == 2
    assert store(predictions, tmp_path / "p.sqlite") == 0
    assert store(predictions.assign(version="2"), tmp_path / "p.sqlite") == 2


def test_the_client_predicts_and_reports_labels(workspace: Workspace, serve: Serve) -> None:
    crown(workspace, "tiny")
    server = serve("tiny")
    client = load(EXAMPLES / "client" / "client.py").Client(server.url)
    answer = client.predict([{"x": 1, "c": "u"}], ids=["q-1"])
    assert (answer["ids"], answer["version"]) == (["q-1"], "1")
    assert client.label({"q-1": "yes"}) == 1
    script = [sys.executable, str(EXAMPLES / "client" / "client.py"), server.url, '{"x": 1, "c": "u"}']
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert '"label": "yes"' in done.stdout
