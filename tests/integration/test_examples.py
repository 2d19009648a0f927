"""The examples: their specs and sources agree, and the database gets each prediction once.

`tests/e2e/test_tutorials.py` runs their loops, `test_served_log.py` the client.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from models.project_spec.reader import read_spec
from models.training.spec_check import check_spec
from tasks.operations.scaffold import examples
from tasks.tools.sources import ingest
from tests.loaded import load

EXAMPLES = Path(__file__).parents[2] / "examples"
LEAST_ROWS = 400


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
    assert folders == {*examples(), "client", "notebook"}
    assert all((EXAMPLES / name / "README.md").is_file() for name in folders)


def test_a_prediction_is_in_the_database_once(tmp_path: Path) -> None:
    store = load(EXAMPLES / "batch" / "into_sqlite.py").store
    predictions = pd.DataFrame({"id": ["a", "b"], "version": ["1", "1"], "prediction": [0.5, 0.7], "bmi": [30.0, 28.0]})
    assert store(predictions, tmp_path / "p.sqlite") == 2
    assert store(predictions, tmp_path / "p.sqlite") == 0
    assert store(predictions.assign(version="2"), tmp_path / "p.sqlite") == 2
