"""Rule: a row of weight 2 counts as that row twice, and one of weight 0 as absent, in every stage.

The rows are split by a group, one for each row, so that a row and its copy are always on the same side.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from models.data.encode import write_tensors
from models.data.feeds import targets
from models.data.preparation import Preparation
from models.data.prepare import prepare_table, write_rows
from models.export.class_head import choose_class_head
from models.export.validation_scores import validation_scores
from models.judge.decide import judge, replay
from models.judge.evidence import Evidence
from models.judge.held_out import baseline_of
from models.metrics.metrics import METRICS, metrics_for
from models.monitoring.calibration import fit_calibration
from models.monitoring.performance import pooled, realised
from models.ngrams.columns import feature_matrix
from models.project_spec.blocks import Judge, Model, Spec, Train
from models.project_spec.monitor_and_retrain import Monitor
from models.project_spec.reserved_columns import ROW_COLUMN, TEXT_PREFIX, WEIGHT_COLUMN
from models.training.job import TrainingJob, TrainingResult
from models.training.rank import run_job
from tasks.operations.monitor import promised

ARGUMENTS: dict[str, dict[str, Any]] = {
    "trees": {
        "rounds": 20,
        "num_leaves": 4,
        "min_data_in_leaf": 1,
        "min_data_in_bin": 1,
        "min_sum_hessian_in_leaf": 0.0,
        "lambda_l2": 0.0,
    },
    "linear": {"l2": 0.0},
    "mlp": {"hidden": 8, "layers": 1, "dropout": 0.0, "norm": "none"},
}
ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "xgboost:XGBClassifier": ("binary", {"rounds": 20, "min_child_weight": 0.0, "reg_lambda": 0.0, "max_depth": 3}),
    "xgboost:XGBRegressor": ("regression", {"rounds": 20, "min_child_weight": 0.0, "max_depth": 3}),
    "catboost:CatBoostClassifier": (
        "multiclass",
        {"rounds": 20, "bootstrap_type": "No", "random_strength": 0.0, "l2_leaf_reg": 0.0},
    ),
    "sklearn.ensemble:HistGradientBoostingRegressor": ("quantile", {"max_iter": 20, "min_samples_leaf": 1}),
    "sklearn.ensemble:HistGradientBoostingClassifier": ("binary", {"max_iter": 20, "min_samples_leaf": 1}),
    "sklearn.tree:DecisionTreeClassifier": ("multilabel", {"max_depth": 3}),
    "sklearn.linear_model:LogisticRegression": ("multiclass", {}),
    "sklearn.linear_model:Ridge": ("regression", {}),
}
"""Estimators that draw no rows, each with a task and arguments that count weights, not rows."""
TARGETS: dict[str, Any] = {"multilabel": ["yes", "large"], "quantile": "number", "regression": "number"}
GOALS = {"binary": "f1", "multiclass": "balanced_accuracy", "multilabel": "f1", "regression": "mae", "quantile": None}


class Prepared(NamedTuple):
    """A prepared folder and its tensors."""

    folder: Path
    tensors: dict[str, Path]
    preparation: Preparation


def frame() -> pd.DataFrame:
    """Rows whose weights depend on their targets, so that an unweighted number is far from the weighted one."""
    random = np.random.default_rng(0)
    x = random.integers(-20, 21, (1200, 2)) / 10
    number = np.round(x[:, 0] - x[:, 1] + random.normal(size=1200), 3)
    return pd.DataFrame(
        {
            "group": np.arange(1200),
            "a": x[:, 0],
            "b": x[:, 1],
            "yes": (number > 0.3).astype(int),
            "large": (number + random.normal(size=1200) > 1).astype(int),
            "number": number,
            "binary": np.where(number > 0.3, "yes", "no"),
            "multiclass": np.select([number < -1, number < 1], ["low", "middle"], "high"),
            "weight": np.where(number > 0.3, random.integers(2, 6, 1200), 1),
        }
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Prepared, Prepared]]:
    """Return the weighted and the repeated rows of a task."""
    place = tmp_path_factory.mktemp("weights")

    def prepared(task: str, rows: pd.DataFrame, weight: str | None) -> Prepared:
        folder = place / f"{task}-{weight}"
        folder.mkdir()
        spec = Spec.model_validate(
            {
                "name": "t",
                "goal": {"metric": GOALS[task]},
                "data": {
                    "source": "t.csv",
                    "target": TARGETS.get(task, task),
                    "weight": weight,
                    "quantiles": [0.1, 0.5, 0.9] if task == "quantile" else None,
                    "split": {"by": "group", "column": "group", "validation": 0.25},
                    "features": {"columns": ["a", "b"], "normalise": "none"},
                },
            }
        )
        made, preparation = prepare_table(pa.Table.from_pandas(rows, preserve_index=False), spec, place)
        write_rows(made, preparation, folder)
        return Prepared(folder, write_tensors(folder, folder), preparation)

    @cache
    def of_task(task: str) -> tuple[Prepared, Prepared]:
        rows = frame()
        repeated = rows.loc[rows.index.repeat(rows["weight"])]
        return prepared(task, rows, "weight"), prepared(task, repeated, None)

    return of_task


def job_of(
    data: Prepared, family: str, task: str, arguments: dict[str, Any] | None = None, **train: Any
) -> TrainingJob:
    metric = GOALS[task] or "pinball"
    return TrainingJob(
        folder=data.folder / family,
        prepared=data.folder,
        tensors=data.tensors,
        project=data.folder,
        model=Model(net=family, arguments=ARGUMENTS[family] if arguments is None else arguments),
        train=Train(**{"epochs": 4, "batch": 100_000, "lr": 0.05, "warmup": 0.0, "refit": False, **train}),
        metric=metric,
        direction=METRICS[metric].direction,
        fold_by="groups",
    )


Both = Callable[[str], tuple[Prepared, Prepared]]
Trained = Callable[[str, str], tuple[list[TrainingJob], list[TrainingResult]]]


@pytest.fixture(scope="module")
def trained(both: Both) -> Trained:
    @cache
    def of_family(family: str, task: str) -> tuple[list[TrainingJob], list[TrainingResult]]:
        jobs = [job_of(data, family, task) for data in both(task)]
        return jobs, [run_job(job) for job in jobs]

    return of_family


FAMILIES = [(family, task) for family in ARGUMENTS for task in GOALS if (family, task) != ("linear", "quantile")]


@pytest.mark.parametrize(("family", "task"), FAMILIES)
def test_every_family(trained: Trained, family: str, task: str) -> None:
    """The losses and metrics of each epoch, on training and on validation rows."""
    _, results = trained(family, task)
    weighted, repeated = ([_quality(epoch) for epoch in result.epochs] for result in results)
    assert len(weighted) == len(repeated)
    for one, other in zip(weighted, repeated, strict=True):
        assert one == pytest.approx(other, rel=0.01)


CLASS_WEIGHTS = [(net, "none") for net in ESTIMATORS] + [(net, "balanced") for net in ESTIMATORS if "ifier" in net]


@pytest.mark.filterwarnings("ignore:Field onnx.AttributeProto.ints")  # skl2onnx writes booleans
@pytest.mark.parametrize(("net", "class_weights"), CLASS_WEIGHTS)
def test_every_estimator(both: Both, net: str, class_weights: str, tmp_path: Path) -> None:
    """The losses and metrics of each epoch; libraries have ways of their own for quantiles of weighted rows."""
    pytest.importorskip(net.partition(".")[0].partition(":")[0])
    task, arguments = ESTIMATORS[net]
    results = []
    for index, data in enumerate(both(task)):
        job = job_of(data, net, task, arguments, class_weights=class_weights)
        results.append(run_job(job.model_copy(update={"folder": tmp_path / str(index)})))
    weighted, repeated = ([_quality(epoch) for epoch in result.epochs] for result in results)
    for one, other in zip(weighted, repeated, strict=True):
        assert one == pytest.approx(other, rel=0.02 if "Regressor" in net else 0.01)


@pytest.mark.wide
def test_estimators_that_draw_rows_in_the_mean_of_their_seeds(both: Both, tmp_path: Path) -> None:
    """The mean losses of small forests of twenty seeds."""
    net, arguments = "sklearn.ensemble:RandomForestRegressor", {"n_estimators": 3, "max_depth": 4}
    means = []
    for index, data in enumerate(both("regression")):
        losses = []
        for seed in range(20):
            job = job_of(data, net, "regression", arguments, seed=seed)
            result = run_job(job.model_copy(update={"folder": tmp_path / f"{index}-{seed}"}))
            losses.append([result.epochs[0][name] for name in ("train_loss", "val_loss")])
        means.append(np.mean(losses, axis=0))
    assert means[0] == pytest.approx(means[1], rel=0.02)


def _quality(epoch: dict[str, float]) -> dict[str, float]:
    """Return the losses and metrics of an epoch; their standard errors count rows."""
    is_shown = {name: "loss" in name or name.startswith("val_") for name in epoch}
    return {name: value for name, value in epoch.items() if is_shown[name] and not name.endswith("_se")}


HEADS = [(family, task) for family, task in FAMILIES if task in ("binary", "multiclass", "multilabel")]


@pytest.mark.parametrize(("family", "task"), HEADS)
def test_every_class_head(trained: Trained, family: str, task: str) -> None:
    """Calibration and decision."""
    (weighted, facts), (repeated, expected) = (
        choose_class_head(job, Preparation.load(job.prepared)) for job in trained(family, task)[0]
    )
    plain, same = ({**each["class_head"], "decision": None} for each in (facts, expected))
    assert plain == pytest.approx(same, abs=0.02)
    head, other = weighted.class_head, repeated.class_head
    assert head.slope == pytest.approx(other.slope, rel=0.02)
    assert head.offsets == pytest.approx(other.offsets, abs=0.15)
    for name in ("thresholds", "score_weights", "score_offsets"):
        assert getattr(head, name) == pytest.approx(getattr(other, name), rel=0.1, abs=0.05), name


@pytest.mark.parametrize("task", GOALS)
def test_the_choice_of_a_family(trained: Trained, task: str) -> None:
    """The scores on validation, those of an ensemble and its weights, and that of a constant."""
    jobs = [trained(family, each)[0] for family, each in FAMILIES if each == task]
    weighted, repeated = (
        validation_scores({job.model.net: job.as_json() for job in side}, is_joined=True)
        for side in zip(*jobs, strict=True)
    )
    assert weighted["constant"] == pytest.approx(repeated["constant"], rel=1e-4)
    assert weighted["weights"] == pytest.approx(repeated["weights"], abs=0.05)
    for net, score in weighted["scores"].items():
        assert score["value"] == pytest.approx(repeated["scores"][net]["value"], rel=0.01)


@pytest.mark.parametrize("task", GOALS)
def test_every_baseline(both: Both, task: str) -> None:
    weighted, repeated = both(task)
    for metric in metrics_for(task, weighted.preparation.outputs):
        constants = [
            baseline_of(data.folder, data.preparation, np.zeros(1), metric.name) for data in (weighted, repeated)
        ]
        assert constants[0].prediction == pytest.approx(constants[1].prediction, rel=0.005)
        assert constants[0].threshold == pytest.approx(constants[1].threshold, rel=1e-6)


@pytest.mark.parametrize("task", GOALS)
def test_every_number_of_a_verdict(both: Both, task: str) -> None:
    """All metrics, intervals, margins and slices, and the figures of each output; a unit is a row with its copies."""
    weighted = both(task)[0]
    random, target = np.random.default_rng(0), targets(weighted.folder, "test")
    weights = random.integers(1, 4, len(target)).astype(float)
    models = {name: _predictions(task, target, random) for name in ("challenger", "champion", "baseline")}
    evidence = Evidence(
        task=task,
        target=target,
        **models,
        outputs=weighted.preparation.outputs,
        weights=weights,
        slices={"half": np.where(random.random(len(target)) < 0.5, "a", "b")},
        clusters=np.arange(len(target)),
    )
    copies = evidence.only(np.repeat(np.arange(len(target)), weights.astype(int)))
    for metric in metrics_for(task, evidence.outputs):
        first, second = (
            judge(each, Judge(resamples=100), metric).model_dump()
            for each in (evidence, dataclasses.replace(copies, weights=None, clusters=copies.clusters))
        )
        for name in ("challenger", "champion", "difference", "over_baseline", "test_set_margin", "metrics", "outputs"):
            assert _numbers(first[name]) == pytest.approx(_numbers(second[name]), nan_ok=True), name
        assert [_numbers(each["challenger"]) for each in first["slices"]] == [
            pytest.approx(_numbers(each["challenger"])) for each in second["slices"]
        ]


def _predictions(task: str, target: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if task == "multiclass":
        chances = random.random((len(target), 3)) + np.eye(3)[target]
        return chances / chances.sum(axis=1, keepdims=True)
    noisy = target + random.normal(size=target.shape)
    return 1 / (1 + np.exp(0.5 - noisy)) if task in ("binary", "multilabel") else np.sort(noisy)


def _numbers(value: Any) -> list[float]:
    """Return all numbers of a part of a verdict in a list."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in _numbers(each)]
    if isinstance(value, list):
        return [number for each in value for number in _numbers(each)]
    return [float(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def test_the_scores_of_texts(tmp_path: Path) -> None:
    """Half of the rows weigh nothing, and their texts say the opposite."""
    random = np.random.default_rng(0)
    good, counts = random.integers(0, 2, 400), np.arange(400) % 2
    words = np.where(good == counts, "good fine nice", "bad poor awful")
    texts = [f"{each} {random.integers(20)}" for each in words]
    table = pa.table({"text": texts, "y": np.where(good == 1, "yes", "no"), "w": counts.astype(float)})
    spec = Spec.model_validate(
        {
            "name": "t",
            "data": {"source": "t.csv", "target": "y", "weight": "w", "features": {"kinds": {"text": "text"}}},
        }
    )
    rows, preparation = prepare_table(table, spec, tmp_path)
    score = feature_matrix(rows.column(TEXT_PREFIX + "text"), preparation.texts[0].num_features)[:, 0]
    counted = rows.column(WEIGHT_COLUMN).to_numpy() > 0
    answers = good[rows.column(ROW_COLUMN).to_numpy()]
    assert np.corrcoef(score[counted], answers[counted])[0, 1] > 0.9


def test_decay_is_told_of_a_change_and_of_nothing_else() -> None:
    """Served rows have no weights, so they are compared with test rows that count alike."""
    metric, random = METRICS["mae"], np.random.default_rng(0)

    def sample(count: int, worse: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        hard = random.random(count) < 0.5
        return random.normal(size=count) * np.where(hard, 3.0, 1.0) * worse, np.where(hard, 0.2, 1.8)

    errors, weights = sample(2000)
    evidence = Evidence(task="regression", target=np.zeros(2000), challenger=errors, weights=weights)
    promoted = promised(judge(evidence, Judge(resamples=100), metric), metric)
    for worse in (1.0, 1.3):
        windows = [(realised(metric, np.zeros(500), sample(500, worse)[0], Monitor(), seed), 500) for seed in range(6)]
        pool = pooled(metric, windows, promoted, Monitor())
        assert pool.decayed == (worse > 1), worse


def test_the_estimate_without_labels(both: Both) -> None:
    """Where weights say how many served rows a row stands for, so does the calibration behind the estimate."""
    random, target = np.random.default_rng(0), targets(both("binary")[0].folder, "test")
    prediction, weight = np.round(random.random(len(target)), 1), np.where(target == 1, 3.0, 1.0)
    repeated = np.repeat(np.arange(len(target)), weight.astype(int))
    weighted = fit_calibration(target, prediction, weight)
    again = fit_calibration(target[repeated], prediction[repeated])
    assert weighted.curves[0].observed == pytest.approx(again.curves[0].observed)


@pytest.mark.parametrize("clusters", [None, np.arange(200) // 20])
def test_rows_of_weight_zero_are_neither_examples_nor_units_of_a_verdict(clusters: Any) -> None:
    """Else four groups that weigh something among ten were enough for a verdict, and twenty rows of a hundred."""
    random = np.random.default_rng(0)
    target, weights = np.arange(200) % 2, (np.arange(200) < 80) * 1.0
    score = 0.5 * target + 0.5 * random.random(200)
    evidence = Evidence("binary", target, score, baseline=np.full(200, 0.5), weights=weights, clusters=clusters)
    rules = Judge(resamples=100, min_samples=100 if clusters is None else 30)
    verdict, absent = (judge(each, rules, METRICS["roc_auc"]) for each in (evidence, evidence.only(weights > 0)))
    of_all_rows = {"digests", "unweighted"}
    assert verdict.model_dump(exclude=of_all_rows) == absent.model_dump(exclude=of_all_rows)
    assert verdict.unweighted.value == METRICS["roc_auc"].value(target, score), "served rows have no weights"
    assert "sample" in [gate.name for gate in verdict.failed]
    assert replay(verdict, evidence, METRICS["roc_auc"]).same
