"""The trivial baseline and the clusters that a verdict takes of a prepared folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy.signal import lfilter

from models.data.feeds import targets
from models.data.preparation import Preparation
from models.data.prepare import prepare
from models.errors import DataError
from models.identity.hashing import row_identities
from models.judge.comparison import Threshold, resample_models
from models.judge.evidence import Evidence
from models.judge.held_out import (
    baseline_of,
    check_measurable,
    is_known,
    joined,
    known_rows,
    naive_forecasts,
    time_units,
    with_clusters,
)
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Spec


def prepared(table: pa.Table, place: Path, **data: object):
    spec = Spec.model_validate({"name": "t", "data": {"source": "x", "target": "y", **data}})
    pq.write_table(table, place / "raw.parquet")
    return spec, prepare(place / "raw.parquet", spec, place, place / "prepared")


def test_of_a_sampled_record_the_rows_that_it_does_not_reach_do_not_count_if_others_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    random = np.random.default_rng(0)
    table = pa.table({"x": random.normal(size=2000), "y": random.choice(["a", "b"], 2000)})
    _, preparation = prepared(table, tmp_path)
    everything = known_rows(tmp_path / "prepared", preparation)
    monkeypatch.setattr("models.judge.held_out.MOST_KNOWN", 500)
    sample = known_rows(tmp_path / "prepared", preparation)
    monkeypatch.setattr("models.identity.hashing.MOST_KNOWN", 500)  # rows beyond the sample have no identity then
    prepared(table, tmp_path)
    np.testing.assert_array_equal(known_rows(tmp_path / "prepared", preparation), sample)
    assert not is_known(tmp_path / "prepared", sample).any()
    prepared(table, tmp_path, split={"seed": 1})
    really, counted = is_known(tmp_path / "prepared", everything), is_known(tmp_path / "prepared", sample)
    assert counted[really].all()
    assert 0 < (~counted).sum() <= (~really).sum()


@pytest.mark.parametrize(
    ("target", "metric", "message"),
    [
        (["b"] + ["a"] * 199, None, "data.split: validation rows: roc_auc is undefined on 30 examples with 1 distinct"),
        (["a", "b"] * 85 + ["a"] * 30, "pr_auc", "data.split: test rows: pr_auc is undefined on 30 examples with 1"),
        ([*range(170)] + [7] * 30, "r2", "data.split: test rows: r2 is undefined"),
        ([*range(1, 200), 0], "mape", "of which 1 have the target 0, by which it divides"),
        (["b"] + ["a"] * 199, "accuracy", None),
        (["b"] + ["a"] * 199, "./own.py:cost", None),
        ([*range(170)] + [7] * 30, None, None),
    ],
)
def test_rows_on_which_the_metric_is_undefined_are_refused(
    tmp_path: Path, target: list[object], metric: str | None, message: str | None
):
    table = pa.table({"x": np.random.default_rng(0).normal(size=200), "y": target})
    _, preparation = prepared(table, tmp_path, split={"by": "position"})
    if message is None:
        check_measurable(tmp_path / "prepared", preparation, metric)
        return
    with pytest.raises(DataError, match=message):
        check_measurable(tmp_path / "prepared", preparation, metric)


def test_a_test_example_is_known_if_one_of_its_targets_is(tmp_path: Path):
    steps = np.arange(120)
    table = pa.table({"t": steps, "y": np.sin(steps / 5.0)})
    window = {"length": 5, "horizon": [1, 7], "stride": 7}
    own = {"kind": "series", "window": window}
    _, preparation = prepared(table, tmp_path, **own, split={"by": "time", "column": "t"})
    known = known_rows(tmp_path / "prepared", preparation)
    assert len(known) == 2 * (preparation.rows["train"] + preparation.rows["validation"])
    assert not is_known(tmp_path / "prepared", known).any()
    # The test rows begin earlier now; of the example at row 88, the target of the first horizon alone was known.
    split = {"by": "time", "column": "t", "test": 0.35}
    _, preparation = prepared(table, tmp_path, **{**own, "window": {**window, "stride": 1}}, split=split)
    test = pq.read_table(tmp_path / "prepared" / "rows.parquet").filter(pc.field("__split") == 2)
    last, is_known_row = test.column("__row").to_numpy(), np.isin(row_identities(table, None), known)
    assert (is_known_row[last - 6] & ~is_known_row[last]).any()
    np.testing.assert_array_equal(is_known(tmp_path / "prepared", known), is_known_row[last - 6] | is_known_row[last])


def clusters_of(folder: Path, preparation: Preparation, spec: Spec, count: int) -> np.ndarray | None:
    noise = np.random.default_rng(0).normal(size=(3, count))
    evidence = Evidence("regression", noise[0], noise[1], baseline=noise[2])
    return with_clusters(evidence, folder, preparation, spec).clusters


def test_a_table_has_the_middle_of_its_training_targets(tmp_path: Path):
    table = pa.table({"x": np.arange(200.0), "y": np.random.default_rng(0).normal(5, 1, 200)})
    spec, preparation = prepared(table, tmp_path)
    folder = tmp_path / "prepared"
    found = baseline_of(folder, preparation, np.zeros(7), "mae")
    assert found.prediction.tolist() == [np.median(targets(folder, "train"))] * 7
    assert clusters_of(folder, preparation, spec, 7) is None


def test_a_series_has_its_last_known_value_and_stretches_of_neighbours(tmp_path: Path):
    steps = np.arange(200)
    table = pa.table({"t": steps, "y": np.sin(steps / 9.0)})
    spec, preparation = prepared(
        table, tmp_path, kind="series", window={"length": 5, "horizon": 2}, split={"by": "time", "column": "t"}
    )
    folder = tmp_path / "prepared"
    count = len(targets(folder, "test"))
    assert baseline_of(folder, preparation, targets(folder, "test"), "mae").prediction[0] == np.sin(
        (200 - count - 2) / 9.0
    )
    clusters = clusters_of(folder, preparation, spec, count)
    assert clusters is not None
    assert np.bincount(clusters)[0] == round(count ** (1 / 3))


def test_each_horizon_has_the_last_value_and_the_seasonal_one(tmp_path: Path):
    steps = np.arange(200)
    values = np.tile(np.random.default_rng(0).normal(size=7), 29)[:200] + 0.001 * steps
    table = pa.table({"t": steps, "y": values})
    window = {"length": 9, "horizon": [1, 8], "season": 7}
    _, preparation = prepared(table, tmp_path, kind="series", window=window, split={"by": "time", "column": "t"})
    folder = tmp_path / "prepared"
    ends = 200 - len(targets(folder, "test")) - 8 + np.arange(len(targets(folder, "test")))
    last, seasonal = naive_forecasts(folder, preparation)
    assert (last.name, seasonal.name) == ("the last value", "the value of a season ago")
    np.testing.assert_allclose(last.prediction, np.stack([values[ends]] * 2, axis=1))
    np.testing.assert_allclose(seasonal.prediction, np.stack([values[ends - 6]] * 2, axis=1))
    assert baseline_of(folder, preparation, targets(folder, "test"), "mae").name == seasonal.name


def test_a_naive_quantile_is_the_forecast_and_the_quantile_of_its_errors_in_training(tmp_path: Path):
    values = np.random.default_rng(0).normal(size=400).cumsum()
    window = {"length": 9, "horizon": [1, 8], "season": 7}
    split = {"by": "time", "column": "t"}
    data = {"kind": "series", "window": window, "split": split, "quantiles": [0.1, 0.9]}
    _, preparation = prepared(pa.table({"t": np.arange(400), "y": values}), tmp_path, **data)
    folder = tmp_path / "prepared"
    assert [output.name for output in preparation.outputs] == ["h1_q0.1", "h1_q0.9", "h8_q0.1", "h8_q0.9"]
    true = targets(folder, "test")
    ends = 400 - len(true) - 8 + np.arange(len(true))
    assert baseline_of(folder, preparation, true, "pinball").name == "the last value"
    forecast = naive_forecasts(folder, preparation)[0].prediction
    num_train = len(targets(folder, "train"))
    for at, ahead in ((0, 1), (2, 8)):
        before = 8 + np.arange(num_train)
        errors = values[before + ahead] - values[before]
        expected = values[ends, None] + np.quantile(errors, [0.1, 0.9], method="weibull")
        np.testing.assert_allclose(forecast[:, at : at + 2], expected)


def test_a_table_split_by_time_has_days_or_the_unit_that_the_spec_names(tmp_path: Path):
    hours = np.datetime64("2024-01-01T00", "h") + np.arange(24 * 100)
    table = pa.table({"at": hours.astype("datetime64[us]"), "x": np.arange(2400.0), "y": np.arange(2400.0)})
    spec, preparation = prepared(table, tmp_path, split={"by": "time", "column": "at"}, features={"columns": ["x"]})
    count = len(targets(tmp_path / "prepared", "test"))
    clusters = clusters_of(tmp_path / "prepared", preparation, spec, count)
    assert clusters is not None
    assert clusters.max() + 1 == count / 24
    weekly = spec.model_copy(update={"judge": spec.judge.model_copy(update={"unit": "week"})})
    clusters = clusters_of(tmp_path / "prepared", preparation, weekly, count)
    assert clusters is not None
    assert clusters.max() + 1 == 3


def test_a_split_by_position_has_stretches(tmp_path: Path):
    table = pa.table({"x": np.arange(2000.0), "y": np.arange(2000.0)})
    spec, preparation = prepared(table, tmp_path, split={"by": "position", "test": 0.2})
    clusters = clusters_of(tmp_path / "prepared", preparation, spec, 400)
    assert clusters is not None
    assert 30 < clusters.max() + 1 <= 100


def test_units_of_time_are_hours_where_there_are_few_days_and_stretches_where_there_are_no_dates():
    minutes = (np.datetime64("2024-01-01T00:00", "m") + np.arange(0, 2 * 24 * 60, 7)).astype("datetime64[us]")
    assert time_units(minutes.astype(np.int64)).max() + 1 == 48
    assert np.bincount(time_units(np.arange(1000))).tolist() == [10] * 100
    assert time_units(np.array([3, 3, 1, 2])).tolist() == [2, 2, 0, 1]


def test_a_week_begins_on_monday():
    days = (np.datetime64("2024-01-01", "D") + np.arange(14)).astype("datetime64[us]").astype(np.int64)
    assert time_units(days, "week").tolist() == [0] * 7 + [1] * 7


def shown_to_be_better(units: np.ndarray, gains: Callable[[], np.ndarray], repeats: int) -> float:
    """Return the share of verdicts that show a gain although there is none on average."""
    random, reached = np.random.default_rng(7), 0
    for repeat in range(repeats):
        champion = 5 + 0.1 * np.abs(random.normal(size=len(units)))
        models = {"challenger": champion + gains(), "champion": champion}
        evidence = Evidence("regression", np.zeros(len(units)), **models)
        clusters = joined(evidence, units, 1)
        result = resample_models(METRICS["mae"], evidence.target, models, 200, repeat, clusters)
        reached += result.difference("champion", Threshold(0.0, strict=True), 0.95).reached
    return reached / repeats


@pytest.mark.parametrize(
    ("sd_of_days", "repeats"), [(0.2, 120), *(pytest.param(sd, 3000, marks=pytest.mark.soak) for sd in (0.05, 0.2))]
)
def test_days_show_a_gain_that_is_none_in_at_most_4_of_100_verdicts(sd_of_days: float, repeats: int):
    random, day = np.random.default_rng(1), np.repeat(np.arange(55), 5)
    sd_of_rows = 0.5 * np.sqrt(5 / 900)  # so that five rows have as exact a mean as nine hundred of sd 0.5

    def gains() -> np.ndarray:
        return random.normal(0, sd_of_rows, len(day)) + random.normal(0, sd_of_days, 55)[day]

    assert shown_to_be_better(day, gains, repeats) <= 0.04


@pytest.mark.parametrize(
    ("phi", "repeats"),
    [(0.98, 75), *(pytest.param(phi, 1000, marks=pytest.mark.soak) for phi in (0.0, 0.8, 0.95, 0.98))],
)
def test_dependent_steps_show_a_gain_that_is_none_in_at_most_4_of_100_verdicts(phi: float, repeats: int):
    random, steps = np.random.default_rng(2), 2600

    def gains() -> np.ndarray:
        noise = random.normal(size=steps + 500)
        return 0.5 * np.sqrt(1 - phi**2) * lfilter([1], [1, -phi], noise)[500:]

    assert shown_to_be_better(np.arange(steps), gains, repeats) <= 0.04


def test_a_gap_in_a_series_has_the_value_known_before_it(tmp_path: Path):
    values = [None if step == 190 else float(step) for step in range(200)]
    _, preparation = prepared(
        pa.table({"t": np.arange(200), "y": values}),
        tmp_path,
        kind="series",
        window={"length": 5},
        split={"by": "time", "column": "t"},
    )
    folder = tmp_path / "prepared"
    test = targets(folder, "test")
    forecast = baseline_of(folder, preparation, test, "mae").prediction
    assert (test - forecast).tolist() == [2.0 if value == 191 else 1.0 for value in test]


def test_groups_hang_together(tmp_path: Path):
    random = np.random.default_rng(0)
    who = random.integers(0, 60, 400)
    table = pa.table({"x": random.normal(size=400), "who": who, "y": random.normal(size=400)})
    spec, preparation = prepared(table, tmp_path, split={"by": "group", "column": "who"})
    folder = tmp_path / "prepared"
    count = len(targets(folder, "test"))
    clusters = clusters_of(folder, preparation, spec, count)
    assert clusters is not None
    assert len(clusters) == count
    assert 1 < clusters.max() + 1 < 60


def test_rows_that_another_model_knows_are_found_again_in_whatever_order_they_come(tmp_path: Path):
    random = np.random.default_rng(0)
    table = pa.table({"x": random.normal(size=300), "y": random.choice(["a", "b"], 300)})
    _, preparation = prepared(table, tmp_path)
    known = known_rows(tmp_path / "prepared", preparation)
    assert len(known) == preparation.rows["train"] + preparation.rows["validation"]
    assert not is_known(tmp_path / "prepared", known).any()
    prepared(table.take(random.permutation(300)), tmp_path)
    assert not is_known(tmp_path / "prepared", known).any()
    prepared(table, tmp_path, split={"seed": 1})
    assert 0.5 < is_known(tmp_path / "prepared", known).mean() < 1


def sums(noise, leads):
    """The errors of forecasts from every origin: sums of what is new in the steps ahead, (origin, lead)."""
    num, ahead = len(noise) - leads, range(1, leads + 1)
    return np.stack([np.convolve(noise, np.ones(lead), "valid")[:num] / lead**0.5 for lead in ahead], axis=1)


@pytest.mark.parametrize(
    ("num", "leads", "phi", "repeats"),
    [
        (86, 12, 0.8, 60),
        *(
            pytest.param(*row, 1000, marks=pytest.mark.soak)
            for row in ((86, 6, 0.5), (250, 12, 0.8), (600, 12, 0.9), (600, 24, 0.95))
        ),
    ],
)
def test_origins_whose_forecasts_overlap_are_no_independent_examples(num, leads, phi, repeats):
    """Two models with common errors, and each its own, which last and overlap: neither is better."""
    random, better, passed, better_by_rows = np.random.default_rng(7), 0, 0, 0
    for repeat in range(repeats):
        common, *noises = random.normal(size=(5, num + leads))
        lasting = [lfilter([(1 - phi**2) ** 0.5], [1, -phi], noise)[leads:, None] for noise in noises[:2]]
        ours, theirs = (
            sums(common, leads) + 0.4 * own + 0.4 * sums(noise, leads)
            for own, noise in zip(lasting, noises[2:], strict=True)
        )
        rows = Evidence("regression", np.zeros((num, leads)), ours, champion=theirs)
        blocks = joined(rows, np.arange(num), max(leads, round(num ** (1 / 3))))
        losses = {"challenger": np.abs(ours).mean(axis=1), "champion": np.abs(theirs).mean(axis=1)}
        by_block, by_row = (
            resample_models(METRICS["mae"], np.zeros(num), losses, 200, repeat, clusters) for clusters in (blocks, None)
        )
        better += by_block.difference("champion", Threshold(0.0, strict=True), 0.95).reached
        better_by_rows += by_row.difference("champion", Threshold(0.0, strict=True), 0.95).reached
        margin = by_block.resolvable_loss("champion", 0.95)
        passed += by_block.difference("champion", Threshold(-margin, strict=False), 0.95).reached
    assert better / repeats <= 0.06
    assert better_by_rows / repeats >= 0.08
    assert passed / repeats >= 0.75
