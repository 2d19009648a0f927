from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sklearn.linear_model import LogisticRegression, Ridge

from models.data.encode import write_tensors
from models.data.feeds import targets
from models.data.preparation import Preparation
from models.errors import UsageError
from models.export.trained import validation_predictions
from models.judge.held_out import baseline_of
from models.project_spec.blocks import Model, Train
from models.training import linear
from models.training.batches.example_set import TableSet
from models.training.batches.examples import open_examples
from models.training.job import COMPANIONS, WEIGHTS_FILE, TrainingJob
from models.training.linear import fit_linear
from models.training.rank import run_job


def _one_hot(job, side):
    tensors = load_file(job.tensors[side])
    categories = np.eye(4)[tensors["categorical"][:, 0]]
    return np.hstack([tensors["numeric"], categories]), tensors["target"]


def _predicted(job, side):
    inputs, _ = _one_hot(job, side)
    weights = load_file(job.folder / WEIGHTS_FILE)
    return inputs @ np.vstack([weights["weight"].T, weights["categories.0.weight"]]) + weights["bias"]


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("l2", [0.1, 10.0])
def test_classes_have_the_probabilities_of_logistic_regression(make_job, task, l2):
    job = make_job("table", task, "linear", {"l2": l2})
    result = run_job(job)
    peer = LogisticRegression(C=1 / l2, tol=1e-8, max_iter=5000).fit(*_one_hot(job, "train"))
    logits = torch.from_numpy(_predicted(job, "validation"))
    ours = logits.sigmoid() if task == "binary" else logits.softmax(1)
    theirs = peer.predict_proba(_one_hot(job, "validation")[0])[:, -ours.shape[1] :]
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    assert result.value > 0.85
    assert result.epochs[0]["train_loss"] < result.epochs[0]["val_loss"] + 0.2


def test_rmse_is_ridge_regression(make_job):
    job = make_job("table", "regression", "linear", {"l2": 5.0}).model_copy(update={"metric": "rmse"})
    run_job(job)
    # The engine's squared error has no half, so its penalty counts half of scikit-learn's.
    peer = Ridge(alpha=2.5).fit(*_one_hot(job, "train"))
    theirs = peer.predict(_one_hot(job, "validation")[0])
    np.testing.assert_allclose(_predicted(job, "validation")[:, 0], theirs, atol=2e-3)


def test_a_second_fit_has_the_same_bits_and_a_finished_one_is_answered(make_job):
    first, second = (make_job("table", "binary", "linear", folder=name) for name in ("one", "two"))
    result = run_job(first)
    assert run_job(second).weights_sha256 == result.weights_sha256
    assert run_job(first) == result


def test_the_numbers_of_a_table_are_not_copied_for_the_fit(make_job, monkeypatch):
    """A refit holds a copy of both sides already."""
    copied, gather = [], TableSet.gather

    def counting(examples, positions, change=None):
        copied.append(len(positions))
        return gather(examples, positions, change)

    monkeypatch.setattr(TableSet, "gather", counting)
    run_job(make_job("table", "binary", "linear", refit=True))
    assert copied == [50, 50], "the validation rows of either fit alone are predicted in passes"


@pytest.mark.parametrize("arguments", [{"l2": -1.0}, {"l2": "much"}, {"iterations": 0}, {"depth": 3}])
def test_wrong_arguments_are_named(make_job, arguments):
    with pytest.raises(UsageError, match=next(iter(arguments))):
        fit_linear(make_job("table", "binary", "linear", arguments), lambda _: True)


@pytest.fixture
def series_job(run_prepare, series_spec, series, tmp_path):
    noise = np.random.default_rng(0).normal(size=120)
    table = series.set_column(1, "y", [noise.cumsum() + np.arange(120)])
    prepared, _ = run_prepare(table, series_spec(horizon=[1, 3], reference="last"))
    (tmp_path / "tensors").mkdir()
    return TrainingJob(
        folder=tmp_path / "job",
        prepared=prepared,
        tensors=write_tensors(prepared, tmp_path / "tensors"),
        project=tmp_path,
        model=Model(net="linear", arguments={"l2": 0.5}),
        train=Train(refit=False),
        metric="mae",
        direction="minimize",
    )


class _Windows(NamedTuple):
    """Windows relative to their last values, with those, and the standardised targets."""

    inputs: np.ndarray
    last: np.ndarray
    target: np.ndarray


def _windows(job):
    preparation, sides = Preparation.load(job.prepared), []
    part = preparation.numeric[0]
    for examples in open_examples(job, preparation):
        windows = examples.gather(torch.arange(len(examples)))["series"].double().numpy()
        last = windows[:, -1:, 0]
        others = windows[:, :, 1:]
        moves = [others[:, -1] - others[:, -2], others[:, -1] - others.mean(axis=1)]
        inputs = np.hstack([windows[:, :, 0] - last, *moves])
        sides.append(_Windows(inputs, last, (examples.values() - part.shift) / part.scale))
    return sides


def _ridge(windows, l2):
    alpha = l2 / len(windows.inputs) * (windows.inputs**2).sum(axis=0).mean()
    return Ridge(alpha=alpha).fit(windows.inputs, windows.target - windows.last)


def test_series_have_the_forecast_of_ridge_regression_on_the_window_less_its_end(series_job):
    value = run_job(series_job).value
    free = series_job.model_copy(update={"folder": series_job.project / "free", "model": Model(net="linear")})
    result = run_job(free)
    assert result.value <= value
    reached = result.environment[COMPANIONS]
    assert min(reached["with"], reached["without"]) == pytest.approx(result.value, rel=0.1)
    assert reached["columns"] == [part.name for part in Preparation.load(free.prepared).numeric[1:]]
    train, unseen = _windows(series_job)
    forecast = unseen.last + _ridge(train, 0.5).predict(unseen.inputs)
    assert not load_file(series_job.folder / WEIGHTS_FILE)["is_scaled"]
    scale = Preparation.load(series_job.prepared).numeric[0].scale
    assert value == pytest.approx(np.abs(forecast - unseen.target).mean() * scale, rel=1e-3)


@pytest.mark.parametrize("levels", [(), (0.1, 0.5, 0.9)])
def test_a_naive_forecast_is_the_one_that_a_model_must_beat(run_prepare, make_spec, series, tmp_path, levels):
    season = np.tile(np.random.default_rng(0).normal(size=24), 5) + np.random.default_rng(1).normal(0, 0.2, 120)
    window, split = {"length": 30, "horizon": [1, 3], "season": 24}, {"by": "time", "column": "t"}
    spec = make_spec(kind="series", window=window, split=split, **({"quantiles": list(levels)} if levels else {}))
    prepared, preparation = run_prepare(series.set_column(1, "y", [season]), spec)
    (tmp_path / "tensors").mkdir()
    tensors = write_tensors(prepared, tmp_path / "tensors")
    job = TrainingJob(
        folder=tmp_path / "job",
        prepared=prepared,
        tensors={**tensors, "validation": tensors["test"]},
        project=tmp_path,
        model=Model(net="naive"),
        train=Train(),
        metric="pinball" if levels else "mae",
        direction="minimize",
    )
    result, target = run_job(job), targets(prepared, "test")
    baseline = baseline_of(prepared, preparation, target, job.metric)
    forecast = validation_predictions(job, preparation, np.arange(len(target)))
    np.testing.assert_allclose(forecast, baseline.prediction, atol=1e-5)
    assert result.members == {}


def _smoothing_job(run_prepare, make_spec, series, folder, values):
    window, split = {"length": 30, "horizon": [1, 3], "season": 12}, {"by": "time", "column": "t"}
    prepared, _ = run_prepare(series.set_column(1, "y", [values]), make_spec(kind="series", window=window, split=split))
    (folder / "tensors").mkdir()
    return TrainingJob(
        folder=folder / "job",
        prepared=prepared,
        tensors=write_tensors(prepared, folder / "tensors"),
        project=folder,
        model=Model(net="smoothing"),
        train=Train(),
        metric="mae",
        direction="minimize",
    )


def test_smoothing_forecasts_a_noisy_season_better_than_the_naive_forecasts(run_prepare, make_spec, series, tmp_path):
    rng = np.random.default_rng(0)
    values = np.tile(rng.normal(size=12), 10) + np.cumsum(rng.normal(0, 0.05, 120)) + rng.normal(0, 0.5, 120)
    job = _smoothing_job(run_prepare, make_spec, series, tmp_path, values)
    naive = job.model_copy(update={"folder": tmp_path / "naive", "model": Model(net="naive")})
    assert run_job(job).value < 0.9 * run_job(naive).value


def test_smoothing_leaves_a_random_walk_its_last_value(run_prepare, make_spec, series, tmp_path):
    job = _smoothing_job(run_prepare, make_spec, series, tmp_path, np.cumsum(np.random.default_rng(1).normal(size=120)))
    naive = job.model_copy(update={"folder": tmp_path / "naive", "model": Model(net="naive")})
    assert run_job(job).value == pytest.approx(run_job(naive).value, rel=0.02)


def test_a_refit_of_series_keeps_the_penalty_that_validation_chose(series_job, monkeypatch):
    monkeypatch.setitem(linear._PENALTIES, "series", (1e-2, 1000.0))
    job = series_job.model_copy(update={"model": Model(net="linear"), "train": Train()})
    result = run_job(job)
    used = result.environment["refit"]
    assert used["l2"] == result.environment["l2"]
    sides = _windows(series_job)
    both = _Windows(*(np.concatenate(parts) for parts in zip(*sides, strict=True)))
    assert used["examples"] == len(both.inputs)
    weights = load_file(job.folder / WEIGHTS_FILE)
    assert bool(weights["is_scaled"]) == used["is_scaled"] == result.environment["is_scaled"]
    assert not used["is_scaled"], "choose another seed: the peer fits windows as they are"
    np.testing.assert_allclose(weights["weight"][:, :-1], _ridge(both, used["l2"]).coef_, atol=1e-4)


def test_a_refit_learns_from_both_sides(make_job):
    job = make_job("table", "binary", "linear", {"l2": 2.0}, refit=True)
    result = run_job(job)
    assert result.value == run_job(make_job("table", "binary", "linear", {"l2": 2.0}, folder="first")).value
    inputs, target = (np.concatenate(p) for p in zip(*(_one_hot(job, s) for s in ("train", "validation")), strict=True))
    peer = LogisticRegression(C=0.5, tol=1e-8, max_iter=5000).fit(inputs, target)
    ours = torch.from_numpy(_predicted(job, "train")).sigmoid()
    np.testing.assert_allclose(ours[:, 0], peer.predict_proba(_one_hot(job, "train")[0])[:, 1], atol=2e-3)
