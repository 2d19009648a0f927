import numpy as np

from models.report import output_figures

RNG = np.random.default_rng(0)


def test_each_kind_of_outputs_has_its_figure():
    truth = RNG.normal(size=(200, 2))
    names = ["load in $", "price"]
    assert b"load in" in output_figures.targets(truth, truth + 0.1, names)
    spread = np.tile([-1.0, 0.0, 1.0], (200, 1)) + truth[:, [0]] * 0.1
    drawn = output_figures.quantiles(np.repeat(truth[:, [0]], 3, axis=1), spread, [0.1, 0.5, 0.9])
    assert b"Coverage of the interval" in drawn
    labels = (truth > 0).astype(int)
    labels[:, 1] = 0  # a label that never occurs has no curve
    svg = output_figures.labels(labels, RNG.random((200, 2)), ["hot", "never"])
    assert b"hot" in svg
    assert b"never" not in svg
