"""A net that corrects a forecast of the window computes the same in torch and in its exported graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from models.data.outputs import with_outputs
from models.data.preparation import Preparation, WindowReference
from models.data.target_encoding import TargetEncoding
from models.export.net_graph import net_part
from models.nets.relative import RelativeNet
from models.nets.sizes import NetReference, Sizes
from tests.finished_jobs import run_stretch, series_preparation

FORECASTS = {
    "last": WindowReference(kind="last", column=0, floor=0.1),
    "seasonal": WindowReference(kind="seasonal", column=0, back=[3], floor=0.1, is_scaled=True),
    "linear": WindowReference(
        kind="linear", column=0, weights=[0.1, 0.2, 0, 0.3, 0, 0.5, -0.2, 0.7], floor=0.1, is_scaled=True
    ),
}
SERIES = np.random.default_rng(0).normal(size=(5, 5, 2)).astype(np.float32)


class Net(nn.Module):
    """Flattens, and has a last layer as the nets of the catalogue."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(10, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """(batch, 1)."""
        output: torch.Tensor = self.head(series.flatten(1))
        return output


def relative(kind: str, *, starts_at_zero: bool) -> tuple[RelativeNet, Preparation]:
    torch.manual_seed(0)
    preparation = series_preparation().model_copy(update={"reference": FORECASTS[kind]})
    reference = Sizes.of(preparation).reference
    assert isinstance(reference, NetReference)
    return RelativeNet(Net(), reference, starts_at_zero=starts_at_zero), preparation


@pytest.mark.parametrize("kind", FORECASTS)
def test_an_untrained_net_gives_the_reference(kind: str) -> None:
    net, _ = relative(kind, starts_at_zero=True)
    own, other = SERIES[:, :, 0], SERIES[:, :, 1]
    change = own - own[:, -1:]
    expected = {
        "last": own[:, -1],
        "seasonal": own[:, 1],
        "linear": own[:, -1]
        + change @ FORECASTS["linear"].weights[:5]
        + np.sqrt((change**2).mean(axis=1) + 0.01) * 0.7
        + 0.5 * (other[:, -1] - other[:, -2])
        - 0.2 * (other[:, -1] - other.mean(axis=1)),
    }
    with torch.no_grad():
        np.testing.assert_allclose(net(torch.from_numpy(SERIES))[:, 0], expected[kind], rtol=1e-5, atol=1e-6)


def test_an_own_net_keeps_its_initial_weights() -> None:
    net, _ = relative("last", starts_at_zero=False)
    assert net.net.head.weight.abs().sum() > 0  # type: ignore[union-attr, operator]


def test_the_graph_computes_what_the_net_does() -> None:
    net, preparation = relative("linear", starts_at_zero=False)
    graph, output = net_part(net.eval(), preparation)
    (got,) = run_stretch(graph, {"core/series": SERIES}, [output])
    with torch.no_grad():
        np.testing.assert_allclose(got, net(torch.from_numpy(SERIES)).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", FORECASTS)
def test_on_the_log_scale_an_untrained_net_gives_the_logarithm_of_the_reference(kind: str) -> None:
    linear, preparation = relative(kind, starts_at_zero=True)
    target = TargetEncoding(name="load", shift=4.0, scale=0.5, log_offset=2.0)
    reference = NetReference.of(preparation.model_copy(update={"target": target}))
    assert reference is not None
    with torch.no_grad():
        forecast = 20 * linear(torch.from_numpy(SERIES)).double().numpy()[:, 0] + 100
        got = RelativeNet(Net(), reference, starts_at_zero=True)(torch.from_numpy(SERIES))[:, 0]
    np.testing.assert_allclose(got, target.encode(forecast), rtol=1e-4, atol=1e-5)


def test_on_the_log_scale_each_horizon_has_its_forecast() -> None:
    forecast = FORECASTS["linear"].model_copy(update={"weights": FORECASTS["linear"].weights * 2})
    target = TargetEncoding(name="load", shift=4.0, scale=0.5, log_offset=2.0)
    preparation = series_preparation().model_copy(
        update={"reference": forecast, "target": with_outputs(target, [1, 2])}
    )
    reference = NetReference.of(preparation)
    assert reference is not None
    with torch.no_grad():
        got = RelativeNet(Net(), reference, starts_at_zero=True)(torch.from_numpy(SERIES))
    assert got.shape == (len(SERIES), 2)
    np.testing.assert_array_equal(got[:, 0], got[:, 1])


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [(60.0, 0.02, 60.0), (-80.0, 0.02, 0.1), (-80.0, 3.0, 100 * np.exp(-12))],
    ids=[
        "a level far below the training rows",
        "a negative forecast",
        "a negative forecast of values that differ much",
    ],
)
def test_on_the_log_scale_the_level_may_fall_but_not_to_0(value: float, scale: float, expected: float) -> None:
    _, preparation = relative("last", starts_at_zero=True)
    target = TargetEncoding(name="load", shift=float(np.log(100)), scale=scale, log_offset=0.0)
    reference = NetReference.of(preparation.model_copy(update={"target": target}))
    assert reference is not None
    with torch.no_grad():
        got = RelativeNet(Net(), reference, starts_at_zero=True)(torch.full((1, 5, 2), (value - 100) / 20))
    np.testing.assert_allclose(target.decode(got.numpy()), expected, rtol=1e-4)
