from pathlib import Path

import numpy as np
import pytest

from models.data.preparation import Preparation
from models.errors import StoreError
from models.export.graph import assemble
from models.inference.predict import latency_ms, predict, session
from models.inputs.graph_builder import GraphBuilder
from tests.finished_jobs import table_preparation


def feed(count: int) -> dict[str, np.ndarray]:
    texts = {name: np.array(["x"] * count, object) for name in ("city", "month", "is late")}
    return {"größe (m)": np.linspace(1, 2, count), "n/1": np.zeros(count), **texts}


def written(folder: Path, task: str) -> tuple[Path, Preparation]:
    """A model whose outputs are the first numeric column, scaled by 1, 2, and so on."""
    preparation = table_preparation(task)
    weights = np.zeros((2, preparation.num_outputs), np.float32)
    weights[0] = np.arange(1, preparation.num_outputs + 1)
    core = GraphBuilder("core/")
    core.node("MatMul", ["core/numeric", core.constant("weights", weights)], "out")
    path = folder / "model.onnx"
    path.write_bytes(assemble(preparation, core, "core/out", {}).SerializeToString())
    return path, preparation


@pytest.mark.parametrize(("task", "shape"), [("binary", (7,)), ("multiclass", (7, 3)), ("regression", (7,))])
def test_predictions_have_the_form_that_metrics_eat(tmp_path: Path, task: str, shape: tuple[int, ...]) -> None:
    path, preparation = written(tmp_path, task)
    whole = predict(path, [feed(7)], preparation)
    assert (whole.shape, whole.dtype) == (shape, np.float64)
    parts = [{name: values[rows] for name, values in feed(7).items()} for rows in (slice(4), slice(4, 7))]
    np.testing.assert_array_equal(predict(path, iter(parts), preparation), whole)


def test_the_probability_of_a_binary_model_is_that_of_the_second_class(tmp_path: Path) -> None:
    path, preparation = written(tmp_path, "binary")
    predicted = predict(path, [feed(7)], preparation)
    assert (np.diff(predicted) > 0).all(), "it grows with the logit"


@pytest.mark.parametrize(("task", "shape"), [("binary", (0,)), ("multiclass", (0, 3)), ("regression", (0,))])
def test_no_rows_give_no_predictions(tmp_path: Path, task: str, shape: tuple[int, ...]) -> None:
    path, preparation = written(tmp_path, task)
    assert predict(path, [], preparation).shape == shape


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(StoreError, match=r"model\.onnx.*export it again"):
        session(path)


def test_latency_is_that_of_one_call(tmp_path: Path) -> None:
    path, _ = written(tmp_path, "binary")
    assert 0 < latency_ms(path, feed(1), runs=5) < 1000
