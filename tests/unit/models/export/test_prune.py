import numpy as np
import onnx
import pytest

from models.errors import TrainingError
from models.export.graph import assemble
from models.export.layers import Layers
from models.export.prune import hidden_units, pruned
from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder
from tests.dense_models import dense_model
from tests.finished_jobs import table_preparation
from tests.unit.models.export.test_smaller_types import predictions, rows


@pytest.mark.parametrize("as_products", [False, True])
def test_hidden_layers_are_found_through_what_looks_at_each_unit_alone(as_products: bool) -> None:
    found = hidden_units(Layers(dense_model(table_preparation(), as_products=as_products)))
    assert [(each.source.name, each.num_units) for each in found] == [
        ("core/first", 32),
        ("core/product" if as_products else "core/second", 32),
    ]
    assert [node.name for each in found for node in each.sinks] == [found[1].source.name, "core/logits"]


@pytest.mark.parametrize("as_products", [False, True])
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_units_are_taken_out_of_the_file_and_of_the_call(as_products: bool, share: float) -> None:
    model = dense_model(table_preparation(), hidden=64, as_products=as_products)
    smaller = pruned(model, [rows(seed=3)], share)
    onnx.checker.check_model(smaller, full_check=True)
    kept = round(64 * (1 - share))
    weight = Layers(smaller).array("core/w2")
    assert weight is not None
    assert weight.shape == (kept, kept)
    assert smaller.ByteSize() < model.ByteSize() - 3 * (64 * 64 - kept * kept)
    assert np.abs(predictions(smaller) - predictions(model)).max() < 0.2


def test_units_that_tell_nothing_go_first_and_nothing_changes() -> None:
    model = dense_model(table_preparation(), hidden=32, dead=8)
    layers = Layers(model)
    second = layers.array("core/w2")
    assert second is not None
    second = second.copy()
    second[:, :8] = 0.0  # the second layer's units 0 to 7 are the same on every row
    layers.put("core/w2", second)
    smaller = pruned(model, [rows(seed=3)], 0.25)
    np.testing.assert_allclose(predictions(smaller), predictions(model), atol=1e-6)


def test_units_that_a_norm_or_a_residual_looks_at_together_stay() -> None:
    core = GraphBuilder(CORE_PREFIX)

    def weights(name: str, *shape: int) -> str:
        return core.constant(name, np.ones(shape, np.float32))

    first = core.node("MatMul", ["core/numeric", weights("w1", 2, 4)], "first")
    second = core.node("MatMul", [first, weights("w2", 4, 4)], "second")
    both = core.node("Add", [first, second], "both")
    normed = core.node("LayerNormalization", [both, weights("scale", 4)], "normed")
    output = core.node("MatMul", [normed, weights("w3", 4, 1)], "output")
    model = assemble(table_preparation(), core, output, {})
    assert hidden_units(Layers(model)) == []
    with pytest.raises(TrainingError, match="no hidden units"):
        pruned(model, [rows()], 0.5)
