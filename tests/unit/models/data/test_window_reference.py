"""The reference forecast: chosen and fitted on training rows; a net that corrects it starts from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from models.data.encode import encode
from models.data.preparation import Preparation, WindowReference
from models.data.window_reference import SeriesValues, held_out, seasonal_lag
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model
from models.project_spec.window import Window

RANDOM = np.random.default_rng(0)
NOISE = RANDOM.normal(size=240)
STEPS = np.arange(240)
WAVE = np.cos(STEPS)
SEASON = np.tile(RANDOM.normal(size=12) * 5, 20)
SHAPES = {
    "walk": NOISE.cumsum() + 50,
    "season": SEASON + 0.1 * NOISE,
    "trend and season": 0.5 * STEPS + SEASON + 0.1 * NOISE,
    "growing": np.exp(STEPS / 60) * (10 + SEASON / 5) * (1 + 0.01 * NOISE),
}


@pytest.fixture
def prepared(make_spec: Any, run_prepare: Any) -> Any:
    def make(values: np.ndarray, others: Any = (WAVE,), **window: Any) -> tuple[Any, Preparation]:
        months = (np.datetime64("2000-01", "M") + STEPS).astype("datetime64[us]")
        columns = {f"x{index}": column for index, column in enumerate(others)}
        table = pa.table({"t": months, "y": values, **columns})
        spec = make_spec(kind="series", window={"length": 24, **window}, split={"by": "time", "column": "t"})
        return run_prepare(table, spec)

    return make


def error_of_an_untrained_net(folder: Any, preparation: Preparation, net: str = "gru") -> float:
    torch.manual_seed(0)
    tensors = encode(folder, "test")
    windows = np.stack([tensors["series"][end - 23 : end + 1] for end in tensors["end"]])
    built = build_net(Model(net=net), Sizes.of(preparation), folder).eval()
    with torch.no_grad():
        output = built(series=torch.from_numpy(windows))[:, 0].double().numpy()
    return float(np.abs(output * preparation.target.scale + preparation.target.shift - tensors["value"]).mean())


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_untrained_net_is_no_worse_than_the_last_and_the_seasonal_value(prepared, shape, horizon):
    values = SHAPES[shape]
    folder, preparation = prepared(values, horizon=horizon)
    rows = np.arange(240)[-36:]
    naive = [np.abs(values[rows] - values[rows - lag]).mean() for lag in (horizon, seasonal_lag(12, horizon))]
    assert error_of_an_untrained_net(folder, preparation) <= 1.1 * min(naive)
    assert preparation.series is not None
    assert preparation.series.season == 12


@pytest.mark.parametrize("seed", range(4))
def test_columns_that_grow_beside_the_target_cost_nothing(prepared, seed):
    rng = np.random.default_rng(seed)
    others = [np.cumsum(rng.normal(0.5, 1, 240)) for _ in range(4)]
    values = 0.5 * STEPS + SEASON + rng.normal(size=240).cumsum()
    without = error_of_an_untrained_net(*prepared(values, others=()))
    assert error_of_an_untrained_net(*prepared(values, others=others)) <= 1.02 * without


@pytest.mark.parametrize("is_known", [False, True])
def test_a_column_that_leads_the_target_is_read_though_it_grows(prepared, is_known):
    steps = np.random.default_rng(1).normal(0.2, 1, 240)
    lead = steps.cumsum() if is_known else np.append(steps[1:], 0.0).cumsum()
    values = steps.cumsum() + 0.2 * NOISE
    window = {"known_future": ["x0"]} if is_known else {}
    without = error_of_an_untrained_net(*prepared(values, others=()))
    assert error_of_an_untrained_net(*prepared(values, others=[lead], **window)) <= 0.5 * without


@pytest.mark.parametrize("net", ["gru", "lstm", "mlp", "transformer"])
@pytest.mark.parametrize("reference", ["last", "seasonal"])
def test_a_named_reference_is_what_an_untrained_net_gives(prepared, net, reference):
    values = SHAPES["trend and season"]
    folder, preparation = prepared(values, reference=reference)
    lag = 1 if reference == "last" else 12
    expected = np.abs(values[-36:] - values[-36 - lag : -lag]).mean()
    assert error_of_an_untrained_net(folder, preparation, net) == pytest.approx(expected, rel=1e-4)


def test_no_reference_leaves_the_net_as_it_is(prepared):
    folder, preparation = prepared(SHAPES["walk"], reference="none")
    assert preparation.reference is None
    assert type(build_net(Model(net="gru"), Sizes.of(preparation), folder)).__name__ == "RecurrentNet"


@pytest.mark.parametrize(("season", "horizon", "lag"), [(12, 1, 12), (12, 12, 12), (12, 13, 24), (7, 30, 35)])
def test_a_seasonal_value_is_known_when_it_is_used(season, horizon, lag):
    assert seasonal_lag(season, horizon) == lag


@pytest.mark.parametrize("shape", ["walk", "trend and season"])
def test_each_horizon_has_a_forecast_of_its_own(prepared, shape):
    values = SHAPES[shape]
    folder, preparation = prepared(values, horizon=[1, 3, 13])
    tensors, target = encode(folder, "test"), preparation.target
    windows = np.stack([tensors["series"][end - 23 : end + 1] for end in tensors["end"]])
    torch.manual_seed(0)
    built = build_net(Model(net="gru"), Sizes.of(preparation), folder).eval()
    with torch.no_grad():
        forecast = built(series=torch.from_numpy(windows)).double().numpy() * target.scale + target.shift
    for at, ahead in enumerate((1, 3, 13)):
        rows = tensors["end"] + ahead
        naive = [np.abs(values[rows] - values[rows - lag]).mean() for lag in (ahead, seasonal_lag(12, ahead))]
        assert np.abs(forecast[:, at] - values[rows]).mean() <= 1.1 * min(naive)


def test_a_seasonal_reference_of_several_horizons_repeats_the_season(prepared):
    values = SHAPES["trend and season"]
    _, preparation = prepared(values, horizon=[1, 3, 13], reference="seasonal")
    assert preparation.reference is not None
    assert preparation.reference.back == [11, 9, 11]


def test_the_reference_of_an_earlier_version_is_read():
    stored = {"kind": "seasonal", "column": 0, "floor": 0.1}
    assert WindowReference.model_validate({**stored, "back": 3}).back == [3]
    assert WindowReference.model_validate({**stored, "kind": "last", "back": None}).back == []


@pytest.mark.parametrize("stride", [1, 5])
def test_what_chooses_a_reference_is_later_than_what_it_is_fitted_on_in_all_series(stride):
    shops, num_steps, window = 3, 60, Window(length=4, horizon=[1, 3], stride=stride)
    step = np.tile(np.arange(num_steps), shops)
    rows = np.flatnonzero((step >= 6) & ((step - 6) % stride == 0))
    rows = rows[np.argsort(step[rows], kind="stable")]
    early, late = held_out(SeriesValues(np.zeros((len(step), 1)), np.zeros(len(step)), step, rows, step), window)
    assert 0.1 * len(rows) <= late.sum() <= 0.3 * len(rows)
    assert early.sum() >= 0.6 * len(rows)
    assert step[rows[early]].max() < (step[rows[late]] - window.last_horizon).min()
