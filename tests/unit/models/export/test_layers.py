import numpy as np

from models.export.layers import Layers
from tests.dense_models import dense_model
from tests.finished_jobs import table_preparation


def test_only_the_net_is_seen() -> None:
    layers = Layers(dense_model(table_preparation()))
    assert {node.op_type for node in layers.nodes()} == {"Gemm", "Relu", "Sigmoid", "Mul", "MatMul"}
    assert [node.name for node in layers.nodes("Gemm")] == ["core/first", "core/second"]
    assert set(layers.constants) == {"core/w1", "core/b1", "core/w2", "core/b2", "core/w3"}


def test_constants_are_read_and_replaced() -> None:
    model = dense_model(table_preparation())
    layers = Layers(model)
    assert layers.array("core/first") is None
    layers.put("core/b2", np.zeros(3, np.float32))
    layers.put("core/new", np.ones(2, np.float32))
    again = Layers(model)
    found = again.array("core/b2"), again.array("core/new")
    assert [None if each is None else each.tolist() for each in found] == [[0, 0, 0], [1, 1]]


def test_constants_that_nothing_reads_are_dropped() -> None:
    model = dense_model(table_preparation())
    before = len(model.graph.initializer)
    layers = Layers(model)
    layers.put("core/new", np.ones(2, np.float32))
    layers.drop_unread()
    assert "core/new" not in layers.constants
    assert len(model.graph.initializer) == before
