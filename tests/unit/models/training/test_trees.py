import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models.data.preparation import Preparation, WindowReference
from models.errors import UsageError
from models.export.trained import validation_predictions
from models.metrics.metrics import resolve_metric
from models.training import model_choice, trees
from models.training.by_rounds import rounds
from models.training.by_rounds.rounds import LearnerInputs
from models.training.job import TREES_FILE, EpochReport
from models.training.rank import run_job
from tests.wide import wide


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def kill_at(epoch: int):
    def report(now: EpochReport) -> bool:
        if now.epoch == epoch:
            raise Killed
        return True

    return report


@pytest.mark.parametrize(("task", "least"), [("binary", 0.85), ("multiclass", 0.85), ("regression", 0.5)])
def test_trees_learn_every_task(make_job, task, least):
    result = run_job(make_job("table", task, "trees", {"rounds": 40, "min_data_in_leaf": 5}, epochs=4))
    assert result.value < least if task == "regression" else result.value > least
    assert len(result.epochs) == 4
    assert {"train_loss", "val_loss", "lr", "samples_per_s"} <= result.epochs[0].keys()


@pytest.mark.parametrize("sampling", [{}, {"feature_fraction": 0.5, "bagging_fraction": 0.6}])
@pytest.mark.parametrize("task", ["multiclass", "regression"])
@pytest.mark.parametrize("epoch", [2, wide(5)])
def test_killed_and_run_again_gives_the_same_text(make_job, sampling, task, epoch):
    arguments = {"rounds": 24, "min_data_in_leaf": 5, **sampling}
    whole = make_job("table", task, "trees", arguments, epochs=8, folder="whole")
    expected = run_job(whole)
    killed = make_job("table", task, "trees", arguments, epochs=8, folder="killed")
    with pytest.raises(Killed):
        run_job(killed, kill_at(epoch))
    result = run_job(killed)
    assert (killed.folder / TREES_FILE).read_text() == (whole.folder / TREES_FILE).read_text()
    assert result.weights_sha256 == expected.weights_sha256
    assert [e["val_loss"] for e in result.epochs] == [e["val_loss"] for e in expected.epochs]
    assert result.resumed_from or epoch == 2


def test_few_rows_get_one_thread_and_any_number_grows_the_same_trees(make_job, monkeypatch):
    one, two = (
        make_job("table", "binary", "trees", {"rounds": 20}, folder=str(threads), job={"threads": threads})
        for threads in (1, 2)
    )
    assert trees.TreesLearner(LearnerInputs.of(two)).parameters(0)[0]["num_threads"] == 1
    monkeypatch.setattr(rounds, "ROWS_A_THREAD", 20)
    assert trees.TreesLearner(LearnerInputs.of(two)).parameters(0)[0]["num_threads"] == 2
    assert run_job(one).weights_sha256 == run_job(two).weights_sha256


def test_checkpoints_stay_within_their_share_of_the_time(make_job):
    for share, resumed in ((1.0, [16]), (1e-9, [4])):
        job = make_job(
            "table", "binary", "trees", {"rounds": 20}, epochs=5, folder=f"{share}", job={"checkpoint_share": share}
        )
        with pytest.raises(Killed):
            run_job(job, kill_at(5))
        assert run_job(job).resumed_from == resumed


def test_a_changed_checkpoint_is_passed_over(make_job):
    job = make_job("table", "binary", "trees", {"rounds": 20}, epochs=5)
    with pytest.raises(Killed):
        run_job(job, kill_at(5))
    newest = max((job.folder / "checkpoints").glob("step-*/state.json"))
    document = json.loads(newest.read_text())
    document["progress"]["step"] += 1
    newest.write_text(json.dumps(document))
    assert run_job(job).resumed_from == [12]


def test_patience_stops_and_the_best_rounds_are_kept(make_job):
    arguments = {"rounds": 400, "learning_rate": 0.5, "min_data_in_leaf": 1}
    result = run_job(make_job("table", "regression", "trees", arguments, epochs=100, patience=2, count=60))
    assert len(result.epochs) == result.best_epoch + 2
    assert result.environment["rounds"] <= result.best_epoch * 4


def test_a_decision_is_fitted_once_an_epoch_and_at_each_look_of_the_first(make_job, monkeypatch):
    fits, fit = [], model_choice.fit_calibration
    monkeypatch.setattr(model_choice, "fit_calibration", lambda *sample: fits.append(len(sample[0])) or fit(*sample))
    job = make_job("table", "binary", "trees", {"rounds": 40, "min_data_in_leaf": 5}, epochs=4)
    result = run_job(job.model_copy(update={"metric": "f1", "direction": "maximize"}))
    assert len(result.epochs) == 4
    assert len(fits) == 10 + 3, "each of the 40 rounds is evaluated"


def test_a_finished_job_is_answered_and_a_pruned_one_says_so(make_job):
    job = make_job("table", "binary", "trees", {"rounds": 10}, epochs=5)
    result = run_job(job, lambda epoch: epoch.epoch < 2)
    assert result.pruned
    assert len(result.epochs) == 2
    assert run_job(job, kill_at(1)) == result


def test_fewer_rounds_than_epochs_make_an_epoch_a_round(make_job):
    job = make_job("table", "binary", "trees", {"rounds": 4}, epochs=10)
    told = []
    result = run_job(job, lambda epoch: told.append((epoch.epoch, epoch.epochs)) is None)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [epoch["rounds"] for epoch in result.epochs] == [1, 2, 3, 4]


def test_unknown_argument_names_the_nearest(make_job):
    with pytest.raises(UsageError, match="did you mean 'num_leaves'"):
        run_job(make_job("table", "binary", "trees", {"num_leavs": 3}))


@pytest.mark.parametrize("metric", ["mae", "mape", "rmse", "pinball_0.8"])
def test_on_the_log_scale_each_goal_gets_its_own_best_prediction(make_job, metric):
    job = make_job("table", "regression", "trees", {"rounds": 30, "min_data_in_leaf": 10}, epochs=3, count=800)
    job = job.model_copy(update={"metric": metric, "direction": "minimize"})
    preparation = Preparation.load(job.prepared)
    target = preparation.target.model_copy(update={"log_offset": 0.0, "shift": 0.0, "scale": 1.0})
    preparation.model_copy(update={"target": target}).save(job.prepared)
    rng = np.random.default_rng(0)
    for path in job.tensors.values():
        tensors = load_file(path)
        noisy = tensors["target"] + rng.normal(scale=1.0, size=len(tensors["target"])).astype(np.float32)
        save_file({**tensors, "target": noisy, "value": np.exp(noisy.astype(np.float64))}, path)
    result = run_job(job)
    values, positions = load_file(job.tensors["validation"])["value"], np.arange(200)
    predicted = validation_predictions(job, Preparation.load(job.prepared), positions)
    assert result.value == pytest.approx(resolve_metric(metric, "regression", job.project).value(values, predicted))
    if metric == "rmse":
        assert predicted.mean() == pytest.approx(values.mean(), rel=0.25)
    else:
        share = {"mae": 0.5, "pinball_0.8": 0.8, "mape": 0.2}[metric]
        assert (values <= predicted).mean() == pytest.approx(share, abs=0.13)


def test_trees_on_series_correct_the_reference_and_resume_alike(make_job):
    job = make_job("series", "regression", "trees", {"rounds": 12, "min_data_in_leaf": 5}, epochs=4)
    preparation = Preparation.load(job.prepared)
    reference = WindowReference(kind="seasonal", column=0, back=[2], floor=0.1, is_scaled=True)
    preparation.model_copy(update={"reference": reference}).save(job.prepared)
    whole = run_job(job)
    assert whole.epochs[-1]["val_loss"] < whole.epochs[0]["val_loss"]
    with pytest.raises(Killed):
        run_job(job.model_copy(update={"folder": job.folder.with_name("killed")}), kill_at(2))
    again = run_job(job.model_copy(update={"folder": job.folder.with_name("killed")}))
    assert again.weights_sha256 == whole.weights_sha256
