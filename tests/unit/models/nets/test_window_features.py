"""Trees on series read the same features in torch and in the graph, and correct the reference forecast."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.data.preparation import Preparation, WindowReference
from models.data.target_encoding import TargetEncoding
from models.export.net_graph import net_part
from models.nets.relative import RelativeNet
from models.nets.sizes import Sizes
from models.nets.window_features import WindowFeatures
from tests.finished_jobs import run_stretch, series_preparation
from tests.unit.models.nets.test_relative import FORECASTS, SERIES, Net
from tests.wide import wide


def prepared(forecast: WindowReference | None) -> Preparation:
    return series_preparation().model_copy(update={"reference": forecast})


@pytest.mark.parametrize("kind", FORECASTS)
def test_the_base_is_what_an_untrained_net_forecasts(kind: str) -> None:
    preparation = prepared(FORECASTS[kind])
    reference = Sizes.of(preparation).reference
    assert reference is not None
    expected = RelativeNet(Net(), reference, starts_at_zero=True)(series=torch.from_numpy(SERIES))
    base = WindowFeatures(preparation)(torch.from_numpy(SERIES))[:, -2]
    np.testing.assert_allclose(base.numpy(), expected.detach()[:, 0].numpy(), rtol=1e-5, atol=1e-6)


def test_lags_and_means_are_of_the_window_relative_to_its_end() -> None:
    features = WindowFeatures(prepared(FORECASTS["last"]))(torch.from_numpy(SERIES)).numpy()
    own = SERIES[:, :, 0].astype(np.float64) - SERIES[:, -1:, 0]
    np.testing.assert_allclose(features[:, :5], own, rtol=1e-6)
    means = np.stack([own[:, -span:].mean(axis=1) for span in (2, 4, 5)], axis=1)
    np.testing.assert_allclose(features[:, 5:8], means, rtol=1e-6)


LOG = TargetEncoding(name="load", shift=-8.0, scale=4.0, log_offset=0.0)
"""On the log scale; its least logarithm, e^-27, is less than what torch's exporter takes for 0."""
FLAT = np.concatenate([SERIES, np.full((1, 5, 2), 1.25, np.float32), np.full((1, 5, 2), -9.0, np.float32)])
"""With a constant window, which only the floor of the scale keeps from a division by 0, and one of negative values."""
TINY = WindowReference(kind="last", column=0, floor=1e-6, is_scaled=True)


@pytest.mark.parametrize(
    ("forecast", "target"),
    [wide(FORECASTS["linear"], None), (None, None), wide(TINY, None), (FORECASTS["linear"], LOG)],
)
def test_the_graph_makes_the_very_same_features(
    forecast: WindowReference | None, target: TargetEncoding | None
) -> None:
    preparation = prepared(forecast)
    preparation = preparation.model_copy(update={"target": target or preparation.target})
    net = WindowFeatures(preparation)
    part, output = net_part(net, preparation)
    (made,) = run_stretch(part, {"core/series": FLAT}, [output])
    expected = net(torch.from_numpy(FLAT)).numpy()
    np.testing.assert_array_equal(made[:, :-2], expected[:, :-2])
    np.testing.assert_allclose(made[:, -2:], expected[:, -2:], rtol=1e-12)
