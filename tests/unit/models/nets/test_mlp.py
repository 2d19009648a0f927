import pytest

from models.errors import UsageError
from models.nets.build import example_inputs
from models.nets.mlp import build


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("layers", [0, 2])
def test_an_mlp_of_every_shape_gives_logits(table, norm, layers):
    net = build(table, hidden=8, layers=layers, norm=norm)
    assert net(**example_inputs(table, 5)).shape == (5, 3)


def test_images_and_series_are_flattened(image, series):
    assert build(image, hidden=8)(**example_inputs(image, 4)).shape == (4, 5)
    assert build(series, hidden=8)(**example_inputs(series, 4)).shape == (4, 1)


def test_bad_words_are_refused(table):
    with pytest.raises(UsageError, match=r"model.arguments.norm: got 'btach', expected one of batch, layer, none"):
        build(table, norm="btach")
