"""Loopline's default for a table beside peers untouched, on the same split: the goal on the test rows, and CPU-seconds.

`python -m tests.bench quality`. The steps ingest, prepare, search and train run in this process as a loop runs them;
the checks of the data, the export and the registry are left out, since no peer has them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.bench.quality_data import CASES, Case, read

SPEC = """\
name: {name}
goal: {{metric: {metric}}}
data:
  source: table.parquet
  target: {target}
  split: {{by: random, seed: {seed}}}
train: {{threads: 1}}
{more}
"""
OLD = "model: {net: mlp}\n"
Fit = Callable[[pd.DataFrame, pd.Series, pd.DataFrame, pd.Series, pd.DataFrame], np.ndarray]


@dataclass(frozen=True)
class Score:
    """The goal on the test rows, CPU-seconds of all processes, and the family that the search chose."""

    value: float
    cpu_s: float
    family: str = ""


def scores(place: Path, seed: int = 0, cases: tuple[Case, ...] = CASES) -> dict[str, dict[str, Score]]:
    """Return the scores of all contestants, by case."""
    cache = place / "sources"
    return {case.short: _contest(case, read(case, cache), place / case.short, seed) for case in cases}


def _contest(case: Case, frame: pd.DataFrame, place: Path, seed: int) -> dict[str, Score]:
    made = {"auto": _loopline(case, frame, place / "auto", seed, "")}
    made["old default: mlp"] = _loopline(case, frame, place / "old", seed, OLD)
    split, tests = _split(place / "auto", case, frame)
    peers: dict[str, Fit] = {"LightGBM": _lightgbm, "HGB": _hgb, "linear": _linear}
    for name, fit in peers.items():
        before = time.process_time()
        inputs = {side: frame.loc[rows].drop(columns=[case.target]) for side, rows in split.items()}
        target = {side: frame.loc[rows, case.target] for side, rows in split.items()}
        predicted = fit(inputs["train"], target["train"], inputs["validation"], target["validation"], inputs["test"])
        made[name] = Score(_value(case, tests, predicted), time.process_time() - before)
    return made


def _loopline(case: Case, frame: pd.DataFrame, place: Path, seed: int, more: str) -> Score:
    """Run the steps up to the trained model, and score it on the test rows."""
    from tasks.host.workspace import Project, Workspace
    from tasks.loop.loop import Loop, SilentReporter
    from tasks.steps.ingest import ingest
    from tasks.steps.prepare import prepare
    from tasks.steps.search import search
    from tasks.steps.train import fit

    folder = place / "projects" / "t"
    folder.mkdir(parents=True)
    frame.to_parquet(folder / "table.parquet")
    text = SPEC.format(name="t", metric=case.metric, target=case.target, seed=seed, more=more)
    (folder / "project.yaml").write_text(text)
    workspace = Workspace(place)
    workspace.make()
    project = Project(workspace, folder)
    before = _cpu_s()
    loop = Loop(project, project.spec(), "t-1", "bench", SilentReporter())
    try:
        for step in (ingest, prepare, search, fit):
            record, _ = step(loop)
    finally:
        loop.rank_pool.close()
    cpu_s = _cpu_s() - before
    return Score(_test_value(case, loop), cpu_s, str(record.result["params"].get("model.net", "mlp")))


def _test_value(case: Case, loop: Any) -> float:
    """Return the goal of the trained model on the test rows, which stand in for the validation rows of its job."""
    from models.data.preparation import Preparation
    from models.export.trained import num_validation_examples, validation_predictions
    from models.files import read_json
    from models.training.job import JOB_FILE, TrainingJob

    trained = loop.step_cache.records.path(next(iter(loop.done["train"].outputs)))
    job = TrainingJob.model_validate(read_json(trained.with_name(JOB_FILE)))
    job = job.model_copy(
        update={"tensors": {**job.tensors, "validation": job.tensors["test"]}, "folder": trained.parent}
    )
    preparation = Preparation.load(job.prepared)
    predicted = validation_predictions(job, preparation, np.arange(num_validation_examples(job)))
    rows = pd.read_parquet(job.prepared / "rows.parquet", columns=[case.target, "__split"])
    target = rows.loc[rows["__split"] == 2, case.target]
    return _value(case, target, _as_table(predicted, preparation.target.classes))


def _as_table(predicted: np.ndarray, classes: list[str] | None) -> np.ndarray | pd.DataFrame:
    """Return probabilities (rows, classes) with their classes, or the values of a regression."""
    if classes is None:
        return predicted
    shares = predicted if predicted.ndim == 2 else np.stack([1 - predicted, predicted], axis=1)
    return pd.DataFrame(shares, columns=classes)


def _split(place: Path, case: Case, frame: pd.DataFrame) -> tuple[dict[str, np.ndarray], pd.Series]:
    """Return the row labels of each side of Loopline's split, and the targets of the test rows."""
    path = next(place.glob("projects/t/data/prepared/rows.parquet"), None) or next(place.rglob("rows.parquet"))
    rows = pd.read_parquet(path, columns=["__row", "__split"])
    names = dict(enumerate(("train", "validation", "test")))
    split = {name: rows.loc[rows["__split"] == code, "__row"].to_numpy() for code, name in names.items()}
    return split, frame.loc[split["test"], case.target]


def _value(case: Case, target: pd.Series, predicted: Any) -> float:
    """Return the case's metric by scikit-learn; classes are columns of `predicted`."""
    from sklearn.metrics import accuracy_score, mean_absolute_error, roc_auc_score

    if case.metric == "mae":
        return float(mean_absolute_error(target, predicted))
    if case.metric == "accuracy":
        return float(accuracy_score(target, predicted.columns.to_numpy()[predicted.to_numpy().argmax(axis=1)]))
    classes = sorted(predicted.columns)
    return float(roc_auc_score(target.to_numpy() == classes[1], predicted[classes[1]]))


def _categorical(frames: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the frames with texts as categories that all of them share."""
    texts = [name for name in frames[0] if frames[0][name].dtype.kind not in "iufb"]
    known = {name: pd.CategoricalDtype(sorted(frames[0][name].dropna().unique())[:250]) for name in texts}
    return [frame.astype(known) for frame in frames]


def _lightgbm(
    train: pd.DataFrame, target: pd.Series, validation: pd.DataFrame, goal: pd.Series, test: pd.DataFrame
) -> Any:
    import lightgbm

    train, validation, test = _categorical([train, validation, test])
    settings = {"n_estimators": 1000, "learning_rate": 0.05, "n_jobs": 1, "verbosity": -1}
    stop = {"eval_set": [(validation, goal)], "callbacks": [lightgbm.early_stopping(50, verbose=False)]}
    if target.dtype.kind in "iuf":
        return lightgbm.LGBMRegressor(objective="l1", **settings).fit(train, target, **stop).predict(test)
    model = lightgbm.LGBMClassifier(**settings).fit(train, target, **stop)
    return pd.DataFrame(model.predict_proba(test), columns=model.classes_)


def _hgb(train: pd.DataFrame, target: pd.Series, validation: pd.DataFrame, goal: pd.Series, test: pd.DataFrame) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    both, rest = _categorical([pd.concat([train, validation]), test])
    answers = pd.concat([target, goal])
    if target.dtype.kind in "iuf":
        return HistGradientBoostingRegressor(categorical_features="from_dtype").fit(both, answers).predict(rest)
    model = HistGradientBoostingClassifier(categorical_features="from_dtype").fit(both, answers)
    return pd.DataFrame(model.predict_proba(rest), columns=model.classes_)


def _linear(
    train: pd.DataFrame, target: pd.Series, validation: pd.DataFrame, goal: pd.Series, test: pd.DataFrame
) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    both, answers = pd.concat([train, validation]), pd.concat([target, goal])
    numbers = [name for name in both if both[name].dtype.kind in "iufb"]
    texts = [name for name in both if name not in numbers]
    inputs = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), texts),
    )
    if target.dtype.kind in "iuf":
        return make_pipeline(inputs, Ridge()).fit(both, answers).predict(test)
    model = make_pipeline(inputs, LogisticRegression(max_iter=2000)).fit(both, answers)
    return pd.DataFrame(model.predict_proba(test), columns=model.classes_)


def _cpu_s() -> float:
    """Return the CPU-seconds of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
