"""A version gives the same answers by MLflow's own ways in as by `loopline predict`, for the project's own CSV."""

from __future__ import annotations

import io
import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import onnx
import pandas as pd
import pytest
from mlflow.pyfunc.scoring_server import invocations

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.export.signature import signature
from models.inference.batch import ReadOptions, csv_types, examples
from models.inference.loaded_model import LoadedModel
from models.inputs.categorical.record import CategoricalInput
from models.inputs.datetime.record import DatetimeInput
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Data
from tasks.mlflow.onnx_model import onnx_model
from tasks.steps.card import python_use
from tests.served_models import write_served

PREPARATION = Preparation(
    kind="table",
    task="binary",
    target=TargetEncoding(name="y", classes=["no", "yes"], dtype="string"),
    dates={"since": "%d.%m.%Y"},
    inputs=[
        NumericInput(name="months", fill=0.5),
        NumericInput(name="fee", fill=0.7),
        CategoricalInput(name="plan", categories=["basic", "plus"]),
        CategoricalInput(name="zone", categories=["1", "2", "30"], dtype="integer"),
        CategoricalInput(name="late", categories=["false", "true"], dtype="boolean"),
        DatetimeInput(name="since", cycles=["day"], trend=True, low=0, high=2e9, shift=1e9, scale=1e9),
    ],
)
WHOLE = """id,months,fee,plan,zone,late,since
1,3,10.5,basic,1,True,2024-01-01
2,40,9.0,plus,30,False,06.05.2023
"""
MISSING = """id,months,fee,plan,zone,late,since
1,,10,basic,1,true,2024-01-01
2,40,,,,,
3,0,7,other,2,false,2023-05-06T07:08:09Z
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow model as `register` writes it."""
    place = tmp_path_factory.mktemp("model")
    write_served(place / "files", preparation=PREPARATION)
    files = {name: place / "files" / name for name in ("model.onnx", "preparation.json")}
    graph = onnx.load(str(files["model.onnx"])).graph
    example = {"months": [1.0], "fee": [2.0], "plan": ["plus"], "zone": ["2"], "late": ["true"], "since": [1e9]}
    exported = {"inputs": signature(graph.input), "input_example": example}
    return onnx_model(place / "model", files, exported, {})


def predicted(folder: Path, tmp_path: Path, text: str) -> list[dict[str, Any]]:
    """The answers of `loopline predict`."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    served = LoadedModel("tiny", "1", folder)
    data = Data(source="rows.csv", target="y")
    reading = ReadOptions(data, PREPARATION, tmp_path, csv_types(PREPARATION.column_inputs, None))
    ((_, feed),) = examples(reading, [path], "rows.csv")
    return served.records(served.answer(feed))


def assert_same(rows: Any, expected: list[dict[str, Any]], way: str) -> None:
    assert [row["label"] for row in rows] == [row["label"] for row in expected], way
    for row, other in zip(rows, expected, strict=True):
        numbers = [name for name in other if name != "label"]
        assert [row[name] for name in numbers] == pytest.approx([other[name] for name in numbers], rel=1e-6), way


@pytest.mark.parametrize("text", [WHOLE, MISSING], ids=["whole numbers", "missing values"])
def test_the_projects_own_csv_is_answered_as_by_loopline_predict(folder: Path, tmp_path: Path, text: str) -> None:
    expected = predicted(folder, tmp_path, text)
    model = mlflow.pyfunc.load_model(str(folder))
    frame = pd.read_csv(io.StringIO(text))
    assert_same(model.predict(frame).to_dict("records"), expected, "pyfunc")
    assert_same(model.predict(frame[::-1])[::-1].to_dict("records"), expected, "an index that does not begin with 0")
    plain = json.loads(frame.to_json(orient="split", index=False))
    bodies = {
        "text/csv": text.encode(),
        "application/json": json.dumps({"dataframe_split": plain}),
    }
    for kind, body in bodies.items():
        answer = invocations(body, kind, model, model.metadata.get_input_schema())
        assert answer.status == 200, kind
        assert_same(json.loads(answer.response)["predictions"], expected, kind)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of MLflow's own code
def test_mlflow_evaluates_a_classifier_by_its_label(
    folder: Path, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier's evaluation takes one column of a model's answers."""
    shutil.copytree(empty_store, tmp_path / "mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow/mlflow.db")
    monkeypatch.chdir(tmp_path)  # of its artifacts
    frame = pd.read_csv(io.StringIO(WHOLE))
    only: dict[str, Any] = {"model_config": {"column": "label"}}
    label = mlflow.pyfunc.load_model(str(folder), **only).predict(frame)
    pd.testing.assert_series_equal(label, mlflow.pyfunc.load_model(str(folder)).predict(frame)["label"])
    frame["y"] = ["no", "yes"]
    quick = {"log_model_explainability": False}
    found = mlflow.models.evaluate(
        str(folder), frame, targets="y", model_type="classifier", evaluator_config=quick, **only
    )
    assert (found.metrics["example_count"], found.metrics["accuracy_score"]) == (2, (label == frame["y"]).mean())


def test_the_python_on_the_card_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = mlflow.pyfunc.load_model(str(folder))
    monkeypatch.setattr(mlflow.pyfunc, "load_model", {"models:/tiny/1": model}.__getitem__)
    exec(python_use("tiny", "1"), {})
    assert "probability_yes" in capsys.readouterr().out


def test_the_example_is_a_row_that_the_version_takes(folder: Path) -> None:
    """A time is no number there, which would be read in the form of `data.dates`."""
    described = mlflow.models.Model.load(str(folder))
    example = described.load_input_example(str(folder))
    assert str(example["since"][0]).startswith("2001-09-09")
    assert set(mlflow.pyfunc.load_model(str(folder)).predict(example)["label"]) <= {"no", "yes"}


def test_a_version_names_its_packages_exactly_and_its_columns(folder: Path) -> None:
    named = (folder / "requirements.txt").read_text().split()
    assert {f"{name}=={version(name)}" for name in ("mlflow", "onnxruntime", "numpy", "pandas")} <= set(named)
    columns = mlflow.models.Model.load(str(folder)).metadata["loopline.inputs"]
    assert columns["months"] == "double"
    assert set(columns) == {"months", "fee", "plan", "zone", "late", "since"}
