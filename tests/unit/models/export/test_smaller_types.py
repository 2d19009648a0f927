import logging

import numpy as np
import onnx
import onnxruntime
import pytest

from models.errors import TrainingError
from models.export.graph import assemble
from models.export.smaller_types import dynamic_int8
from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder
from tests.dense_models import dense_model
from tests.finished_jobs import table_preparation


def rows(count: int = 200) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    cities = rng.choice(["Zürich", "東京", "?"], count).astype(object)
    numbers = {"größe (m)": rng.normal(1.7, 0.3, count), "n/1": rng.normal(-3, 1, count)}
    return {
        **numbers,
        "city": cities,
        "month": np.full(count, "7", object),
        "is late": np.full(count, "true", object),
    }


def predictions(model: onnx.ModelProto) -> np.ndarray:
    running = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = {entry.name for entry in running.get_inputs()}
    found: np.ndarray = running.run(["probabilities"], {name: each for name, each in rows().items() if name in wanted})[
        0
    ]
    return found


def test_the_file_is_about_a_quarter_and_the_predictions_are_near() -> None:
    model = dense_model(table_preparation(), hidden=256)
    smaller = dynamic_int8(model)
    onnx.checker.check_model(smaller)
    assert smaller.ByteSize() < 0.4 * model.ByteSize()
    assert 0 < np.abs(predictions(smaller) - predictions(model)).max() < 0.05


def test_preparation_head_papers_and_names_stay() -> None:
    model = dense_model(table_preparation())
    smaller = dynamic_int8(model)
    assert list(smaller.graph.input) == list(model.graph.input)
    assert list(smaller.graph.output) == list(model.graph.output)
    assert list(smaller.metadata_props) == list(model.metadata_props)
    assert smaller.producer_name == "loopline"
    outside = {node.name: node for node in model.graph.node if not node.name.startswith("core/")}
    assert {node.name: node for node in smaller.graph.node if node.name in outside} == outside


def test_the_same_model_gives_the_same_bytes_and_is_left_as_it_was() -> None:
    model = dense_model(table_preparation())
    before = model.SerializeToString(deterministic=True)
    first, second = (dynamic_int8(model).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second
    assert model.SerializeToString(deterministic=True) == before


def test_a_net_without_such_layers_is_told_of() -> None:
    core = GraphBuilder(CORE_PREFIX)
    axis = core.constant("axis", np.array([1], np.int64))
    output = core.node("ReduceMean", ["core/numeric", axis], "mean", keepdims=1)
    with pytest.raises(TrainingError, match="no layer that can be made int8"):
        dynamic_int8(assemble(table_preparation(), core, output, {}))


def test_the_tools_advice_is_not_shown_and_the_log_is_as_before(caplog: pytest.LogCaptureFixture) -> None:
    level = logging.getLogger().level
    dynamic_int8(dense_model(table_preparation()))
    assert caplog.text == ""
    assert logging.getLogger().level == level


def test_the_weights_of_an_lstm_are_put_together_and_made_int8() -> None:
    rng = np.random.default_rng(0)
    core = GraphBuilder(CORE_PREFIX)

    def weights(name: str, *shape: int) -> str:
        """A cell's weights in the order of torch's gates, put into ONNX's as its exporter does."""
        raw = core.constant(name, rng.normal(scale=0.2, size=shape).astype(np.float32))
        halves = []
        for side, ends in {f"{name}/first": (0, 64), f"{name}/rest": (64, 256)}.items():
            start, stop = (core.constant(f"{side}/{at}", np.array([at])) for at in ends)
            halves.append(core.node("Slice", [raw, start, stop, axis], side))
        joined = core.node("Concat", halves, f"{name}/joined", axis=0)
        return core.node(
            "Unsqueeze",
            [joined, axis],
            f"{name}/one",
        )

    axis = core.constant("axis", np.array([0]))
    steps = core.node("Unsqueeze", ["core/numeric", axis], "steps")  # (1, batch, 2): one step of the rows
    states = core.node("LSTM", [steps, weights("w", 256, 2), weights("r", 256, 64)], "states", hidden_size=64)
    flat = core.node("Squeeze", [states, core.constant("both", np.array([0, 1]))], "flat")
    output = core.node("MatMul", [flat, core.constant("head", np.ones((64, 1), np.float32))], "output")
    model = assemble(table_preparation(), core, output, {})
    smaller = dynamic_int8(model)
    onnx.checker.check_model(smaller)
    assert [node.op_type for node in smaller.graph.node if "LSTM" in node.op_type] == ["DynamicQuantizeLSTM"]
    assert smaller.ByteSize() < 0.5 * model.ByteSize()
    assert np.abs(predictions(smaller) - predictions(model)).max() < 0.05
