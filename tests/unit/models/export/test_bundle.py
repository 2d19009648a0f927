import json
from pathlib import Path

import pytest

from models.export.bundle import FILES, MODEL, bundle, example, schema
from models.inference.loaded_model import LoadedModel
from tests.served_models import write_served


def served(folder: Path, task: str = "binary") -> LoadedModel:
    write_served(folder, task)
    return LoadedModel("tiny", "3", folder)


@pytest.mark.parametrize("task", ["binary", "regression", "series", "image", "language"])
def test_every_kind_has_all_files_and_a_schema_that_holds_its_example(tmp_path: Path, task: str) -> None:
    version = served(tmp_path, task)
    texts = bundle(version, {"made by": "a test"})
    assert {*texts, MODEL} == set(FILES)
    told, rows = json.loads(texts["schema.json"]), json.loads(texts["example.json"])
    assert told == json.loads(json.dumps(schema(version)))
    record = told["$defs"]["record"]
    for row in rows:
        assert set(record["required"]) <= set(row) <= set(record["properties"])
    assert "pip install onnxruntime" in texts["README.md"]
    assert "* made by: a test" in texts["README.md"]


def test_the_schema_names_the_tensors_of_the_graph(tmp_path: Path) -> None:
    tensors = schema(served(tmp_path, "language"))["tensors"]
    assert [each["name"] for each in tensors["inputs"]] == ["text"]
    assert [each["name"] for each in tensors["outputs"]] == ["log_probabilities", "bits"]


def test_a_series_needs_the_steps_of_a_window(tmp_path: Path) -> None:
    version = served(tmp_path, "series")
    assert schema(version)["minItems"] == len(example(version.preparation)) == 3


@pytest.mark.parametrize("task", ["binary", "series", "image", "language"])
def test_the_example_is_of_usual_values_and_can_be_answered(tmp_path: Path, task: str) -> None:
    version = served(tmp_path, task)
    rows = example(version.preparation)
    assert version.answer(version.reader.of_records(rows).feed).num_rows == 1
    if task == "binary":
        assert rows == [{"x": 0.0, "c": "u"}]
