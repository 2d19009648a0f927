"""Each figure of several outputs is an SVG that names the outputs, whatever they hold."""

import numpy as np
import pytest

from models.report import output_figures

pytestmark = pytest.mark.usefixtures("pictures")

rng = np.random.default_rng(0)
TRUE = rng.normal(size=(300, 2))
PREDICTED = TRUE + rng.normal(size=(300, 2))


def test_each_target_has_a_panel_and_many_are_cut():
    drawn = output_figures.targets(TRUE, PREDICTED, ["load", "price"]).decode()
    assert drawn.count("<svg") == 1
    many = np.repeat(TRUE[:, :1], 12, axis=1)
    names = [f"t{at}" for at in range(12)]
    assert b"<svg" in output_figures.targets(many, many, names)


@pytest.mark.parametrize("spread", [1.0, 0.0])
def test_quantiles_are_drawn_also_where_all_predictions_are_equal(spread):
    middle = spread * rng.normal(size=300)
    levels = [0.1, 0.5, 0.9]
    prediction = np.stack([middle - 1, middle, middle + 1], axis=1)
    assert b"<svg" in output_figures.quantiles(np.repeat(TRUE[:, :1], 3, axis=1), prediction, levels)


def test_labels_that_never_occur_are_left_out():
    target = np.stack([TRUE[:, 0] > 0, np.zeros(300)], axis=1).astype(float)
    assert b"<svg" in output_figures.labels(target, rng.random((300, 2)), ["rain", "snow"])
    assert b"<svg" in output_figures.labels(np.zeros((5, 1)), np.zeros((5, 1)), ["none"])


def test_the_first_places_of_a_ranking_are_drawn_for_each_model():
    target = np.stack([rng.integers(0, 3, 300), np.repeat(np.arange(30), 10)], axis=1)
    drawn = output_figures.places(target, {"challenger": TRUE[:, 0], "champion": TRUE[:, 1]}).decode()
    assert drawn.count("<svg") == 1
    assert "NDCG@k" in drawn
