import json

import numpy as np
import pytest

from models.data.preparation import Preparation
from models.errors import UsageError, UserCodeError
from models.estimators.stored import unpack
from models.export.trained import validation_outputs, validation_predictions
from models.metrics.metrics import resolve_metric
from models.training.job import EpochReport
from models.training.rank import run_job
from tests.wide import wide

BOOSTED = ["xgboost:XGBClassifier", "catboost:CatBoostClassifier"]
SAMPLED = {
    "xgboost:XGBClassifier": {"subsample": 0.6, "colsample_bynode": 0.5},
    "catboost:CatBoostClassifier": {"rsm": 0.5, "bootstrap_type": "Bernoulli", "subsample": 0.6},
    "./own.py:FAMILY": {},
}
OWN = """
import json
import numpy

def fit(data, settings, before):
    steps = json.loads(before) if before else []
    rng = numpy.random.default_rng(settings["seed"])
    for _ in range(settings["rounds"]):
        rows = rng.random(len(data.x)) < 0.6
        left = data.y - sum(numpy.where(data.x[:, step[0]] > step[1], step[2], -step[2]) for step in steps)
        column = int(rng.integers(data.x.shape[1]))
        sign = numpy.where(data.x[rows, column] > 0, 1.0, -1.0)
        steps.append([column, 0.0, float(settings["rate"] * (sign * left[rows]).mean())])
    return json.dumps(steps).encode()

def predict(model, x):
    return sum(numpy.where(x[:, step[0]] > step[1], step[2], -step[2]) for step in json.loads(model))

def onnx(model, width):
    raise NotImplementedError

FAMILY = {
    "fit": fit,
    "predict": predict,
    "onnx": onnx,
    "output": "scores",
    "tasks": ["regression"],
    "rounds": 24,
    "arguments": {"rate": 0.5},
}
"""
PIPELINE = """
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

def build(settings):
    return make_pipeline(PCA(settings["components"], random_state=settings["seed"]), LogisticRegression(C=10.0))

FAMILY = {
    "estimator": build,
    "output": "probabilities",
    "tasks": ["binary", "multiclass"],
    "numbers": "standardised",
    "categories": "one-hot",
    "arguments": {"components": 3},
}
"""


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def kill_at(epoch: int):
    def report(now: EpochReport) -> bool:
        if now.epoch == epoch:
            raise Killed
        return True

    return report


@pytest.fixture(autouse=True)
def _own_files(tmp_path):
    """A boosted family and a pipeline of a team's own, beside the spec."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "pipeline.py").write_text(PIPELINE)


@pytest.fixture
def make(make_job):
    """A function that gives a job of an estimator, whose library must be there."""

    def job(net, task, arguments=None, kind="table", **settings):
        pytest.importorskip(net.partition(".")[0].partition(":")[0] or "json")
        return make_job(kind, task, net, arguments, **settings)

    return job


@pytest.mark.filterwarnings("ignore:Field onnx.AttributeProto.ints")  # skl2onnx writes booleans
@pytest.mark.parametrize(
    ("net", "task", "arguments", "least"),
    [
        ("xgboost:XGBClassifier", "binary", {"rounds": 30}, 0.85),
        ("xgboost:XGBClassifier", "multiclass", {"rounds": 30}, 0.85),
        ("xgboost:XGBRegressor", "regression", {"rounds": 60, "learning_rate": 0.2}, 0.5),
        ("catboost:CatBoostClassifier", "multiclass", {"rounds": 30, "learning_rate": 0.2}, 0.85),
        ("catboost:CatBoostRegressor", "regression", {"rounds": 60, "learning_rate": 0.2}, 0.5),
        ("sklearn.ensemble:RandomForestClassifier", "multiclass", {"n_estimators": 20}, 0.85),
        ("sklearn.ensemble:HistGradientBoostingClassifier", "binary", {"max_iter": 20}, 0.85),
        ("sklearn.linear_model:LogisticRegression", "binary", {}, 0.85),
        ("sklearn.linear_model:Ridge", "regression", {}, 0.5),
        ("./pipeline.py:FAMILY", "multiclass", {"components": 5}, 0.8),
        ("./own.py:FAMILY", "regression", {"rounds": 40}, 1.6),
    ],
)
def test_estimators_learn_every_task(make, net, task, arguments, least):
    job = make(net, task, arguments, epochs=4, folder="job")
    result = run_job(job)
    assert result.value < least if task == "regression" else result.value > least
    assert {"train_loss", "val_loss", "samples_per_s"} <= result.epochs[0].keys()
    preparation, positions = Preparation.load(job.prepared), np.arange(50)
    values = {"regression": "value"}.get(task, "target")
    predicted = validation_predictions(job, preparation, positions)
    metric = resolve_metric(job.metric, task, job.project)
    target = load_values(job, values)
    assert result.value == pytest.approx(metric.value(target, predicted), abs=1e-6)


def load_values(job, name):
    """The true values of the validation examples."""
    from safetensors.numpy import load_file

    return load_file(job.tensors["validation"])[name]


@pytest.mark.parametrize("net", SAMPLED)
@pytest.mark.parametrize("epoch", [2, wide(5)])
def test_killed_and_run_again_gives_the_same_bytes(make, net, epoch):
    task = "regression" if net.startswith(".") else "multiclass"
    jobs = [make(net, task, {"rounds": 24, **SAMPLED[net]}, epochs=8, folder=name) for name in ("whole", "killed")]
    expected = run_job(jobs[0])
    with pytest.raises(Killed):
        run_job(jobs[1], kill_at(epoch))
    result = run_job(jobs[1])
    assert result.weights_sha256 == expected.weights_sha256
    assert [e["val_loss"] for e in result.epochs] == [e["val_loss"] for e in expected.epochs]
    assert result.resumed_from


def test_each_training_and_each_epoch_draws_by_a_seed_of_its_own(make):
    jobs = [
        make("./own.py:FAMILY", "regression", {"rounds": 24, "rate": 0.05}, epochs=4, folder=f"seed{seed}")
        for seed in (1, 2)
    ]
    jobs[1] = jobs[1].model_copy(update={"train": jobs[1].train.model_copy(update={"seed": 2})})
    hashes = {run_job(job).weights_sha256 for job in jobs}
    assert len(hashes) == 2
    steps = json.loads(unpack(jobs[0].read_weights()).outputs[0].model)
    columns = [[step[0] for step in steps[first : first + 6]] for first in range(0, len(steps), 6)]
    assert len(columns) > 1
    assert columns[0] != columns[1]


def test_what_has_no_rounds_is_fitted_in_one_epoch_and_refitted(make):
    job = make("sklearn.linear_model:Ridge", "regression", epochs=20, refit=True)
    result = run_job(job)
    assert len(result.epochs) == 1
    assert result.environment["refit"]["examples"] == 250


def test_series_correct_the_reference_as_trees_do(make):
    job = make("sklearn.neighbors:KNeighborsRegressor", "regression", {"n_neighbors": 5}, kind="series")
    run_job(job)
    outputs = validation_outputs(job, Preparation.load(job.prepared), np.arange(50))
    assert outputs.shape == (50, 1)


def test_the_result_tells_library_and_arguments(make):
    result = run_job(make("xgboost:XGBClassifier", "binary", {"rounds": 2, "max_depth": 3}))
    assert {"class", "parameters", "rounds"} <= result.environment.keys()
    assert result.environment["parameters"]["max_depth"] == 3
    assert any(name.startswith("xgboost") for name in result.environment)


def test_an_estimator_without_quantiles_says_so(make):
    job = make("sklearn.linear_model:Ridge", "regression").model_copy(update={"metric": "pinball_0.8"})
    with pytest.raises(UsageError, match="Ridge learns no quantile: take another estimator"):
        run_job(job)


def test_an_error_of_a_teams_own_file_names_its_line(make, tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace('settings["rate"]', 'settings["speed"]'))
    with pytest.raises(UserCodeError, match=r"own.py:FAMILY raised KeyError: 'speed' \(.*own.py:13\)"):
        run_job(make("./own.py:FAMILY", "regression"))
