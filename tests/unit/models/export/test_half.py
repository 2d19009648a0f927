import numpy as np
import onnx
import pytest

from models.errors import TrainingError
from models.export.half import halved
from models.export.layers import Layers
from tests.dense_models import dense_model
from tests.finished_jobs import table_preparation
from tests.unit.models.export.test_int8 import predictions


def test_the_file_is_about_half_and_the_predictions_are_nearly_the_same() -> None:
    model = dense_model(table_preparation(), hidden=128)
    smaller = halved(model)
    onnx.checker.check_model(smaller, full_check=True)
    assert smaller.ByteSize() < 0.6 * model.ByteSize()
    before, after = predictions(model), predictions(smaller)
    assert 0 < np.abs(after - before).max() < 2e-3


def test_only_weights_of_the_net_are_halved() -> None:
    smaller = halved(dense_model(table_preparation()))
    halves = [each.name for each in smaller.graph.initializer if each.data_type == onnx.TensorProto.FLOAT16]
    assert sorted(halves) == ["core/w1/half", "core/w2/half"]  # a bias of 32 is not worth an operator


def test_a_weight_out_of_range_is_an_error_that_names_it() -> None:
    model = dense_model(table_preparation(), hidden=64, dead=1)
    with pytest.raises(TrainingError, match=r"core/b1 holds 1e\+06, beyond float16's 65504"):
        halved(model)


def test_a_net_without_weights_is_told_of() -> None:
    model = dense_model(table_preparation())
    for name in list(Layers(model).constants):
        Layers(model).put(name, np.zeros(1, np.float32))
    with pytest.raises(TrainingError, match="no weights"):
        halved(model)


def test_the_model_that_was_given_is_as_it_was() -> None:
    model = dense_model(table_preparation())
    before = model.SerializeToString(deterministic=True)
    halved(model)
    assert model.SerializeToString(deterministic=True) == before
