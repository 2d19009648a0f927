"""The peers of the comparison of defaults, each as a user would take it untouched, on one thread.

LightGBM, XGBoost and CatBoost stop early on the validation rows; the others are fitted on training and validation rows
together. Each returns its predictions for the test rows: numbers, or probabilities with the classes as columns. A peer
is a row of `PEERS`, with the kinds of data that it takes.
"""

from __future__ import annotations

import subprocess
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tests.bench import quality_picture_peers as pictures
from tests.bench.quality_case import Case
from tests.bench.quality_sides import (
    SIDES,
    Sides,
    categorical,
    encoder,
    from_the_end,
    numbered,
    probabilities,
    standard,
    words,
)

Fit = Callable[[Case, Sides], Any]
ROUNDS, RATE, PATIENCE = 1000, 0.05, 50


class Peer(NamedTuple):
    """One peer.

    Attributes:
        fit: Learns, and returns the predictions for the test rows.
        kinds: Kinds of data that it takes.
        imports: What it imports, which is not counted as its fit.
        needs_text: Whether it is for data with a column of texts alone.
        needs_season: Whether it is for series with a season alone.
        python: The option that names the Python of its own environment; "" for ours.
    """

    fit: Fit
    kinds: tuple[str, ...]
    imports: tuple[str, ...] = ()
    needs_text: bool = False
    needs_season: bool = False
    python: str = ""

    def takes(self, case: Case) -> bool:
        """Whether it is for this data."""
        fits = bool(case.text) >= self.needs_text and bool(case.season) >= self.needs_season
        return fits and case.kind in self.kinds


def lightgbm(case: Case, sides: Sides) -> Any:
    """LightGBM, learning rate .05, early stopping after 50 rounds; texts as TF-IDF, series as changes from the end."""
    import lightgbm as library

    parts, goals, last = _for_trees(case, sides)
    settings = {"n_estimators": ROUNDS, "learning_rate": RATE, "n_jobs": 1, "verbosity": -1}
    warnings.filterwarnings("ignore", "The argument 'eval_set' is deprecated")  # its successor takes no class names
    stop = {"eval_set": [(parts[1], goals[1])], "callbacks": [library.early_stopping(PATIENCE, verbose=False)]}
    if sides.is_number:
        model = library.LGBMRegressor(objective="l1", **settings).fit(parts[0], goals[0], **stop)
        return model.predict(parts[2]) + last
    model = library.LGBMClassifier(**settings).fit(parts[0], goals[0], **stop)
    return probabilities(model, parts[2])


def xgboost(case: Case, sides: Sides) -> Any:
    """XGBoost with histograms, learning rate .05, early stopping after 50 rounds."""
    import xgboost as library

    parts, goals, last = _for_trees(case, sides)
    settings = {"n_estimators": ROUNDS, "learning_rate": RATE, "n_jobs": 1, "early_stopping_rounds": PATIENCE,
                "enable_categorical": True, "tree_method": "hist"}  # fmt: skip
    if sides.is_number:
        model = library.XGBRegressor(objective="reg:absoluteerror", **settings)
        return model.fit(parts[0], goals[0], eval_set=[(parts[1], goals[1])], verbose=False).predict(parts[2]) + last
    classes, (train, validation) = numbered(goals)
    model = library.XGBClassifier(**settings)
    chosen = np.flatnonzero(validation >= 0)  # it takes no class of the validation rows that training rows lack
    held_out = parts[1].iloc[chosen] if isinstance(parts[1], pd.DataFrame) else parts[1][chosen]
    model.fit(parts[0], train, eval_set=[(held_out, validation[chosen])], verbose=False)
    return pd.DataFrame(model.predict_proba(parts[2]), columns=classes)


def catboost(case: Case, sides: Sides) -> Any:
    """CatBoost with its own learning rate and categories, early stopping after 50 rounds."""
    import catboost as library

    parts, goals, last = _for_trees(case, sides)
    is_frame = case.kind == "table" and not case.text
    categories = [name for name in parts[0] if parts[0][name].dtype == "category"] if is_frame else []
    if is_frame:
        parts = [part.assign(**{name: words(part[name].astype(object)) for name in categories}) for part in parts]
    settings = {"iterations": ROUNDS, "thread_count": 1, "verbose": False, "allow_writing_files": False,
                "cat_features": categories or None, "early_stopping_rounds": PATIENCE, "random_seed": 0}  # fmt: skip
    if sides.is_number:
        model = library.CatBoostRegressor(loss_function="MAE", **settings)
        return model.fit(parts[0], goals[0], eval_set=(parts[1], goals[1])).predict(parts[2]) + last
    seen = np.flatnonzero(np.isin(goals[1], np.unique(goals[0])))
    held_out = parts[1].iloc[seen] if isinstance(parts[1], pd.DataFrame) else parts[1][seen]
    model = library.CatBoostClassifier(**settings)
    model.fit(parts[0], np.asarray(goals[0]), eval_set=(held_out, np.asarray(goals[1])[seen]))
    return probabilities(model, parts[2])


def hgb(case: Case, sides: Sides) -> Any:
    """scikit-learn's histogram gradient boosting with its defaults, which stops early above 10,000 rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    inputs, goal = sides.both()
    tests = sides.inputs["test"]
    if case.kind == "table":
        dropped = [case.text] if case.text else []  # it takes no sparse matrix
        inputs, tests = categorical([inputs.drop(columns=dropped), tests.drop(columns=dropped)])
    last: Any = 0.0
    if case.kind == "series":
        (inputs, tests), (goal,), last = from_the_end([inputs, tests], [goal])
    if sides.is_number:
        return HistGradientBoostingRegressor(categorical_features="from_dtype").fit(inputs, goal).predict(tests) + last
    return probabilities(HistGradientBoostingClassifier(categorical_features="from_dtype").fit(inputs, goal), tests)


def linear(case: Case, sides: Sides) -> Any:
    """Logistic or ridge regression: on TF-IDF of texts, on standardised numbers and one-hot categories, on windows."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return _linear(case, sides, TfidfVectorizer(), 1.0)


def words_and_characters(case: Case, sides: Sides) -> Any:
    """Sub-linear TF-IDF of words, pairs and pieces of two to five characters, with logistic or ridge regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    pieces = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    return _linear(case, sides, make_union(words, pieces), 5.0)


def last_value(case: Case, sides: Sides) -> Any:
    """The last value of the window, for series."""
    del case
    return sides.inputs["test"][:, -1, 0]


def seasonal(case: Case, sides: Sides) -> Any:
    """The value of a season ago, for series."""
    return sides.inputs["test"][:, -case.season, 0]


def autogluon(preset: str, case: Case, sides: Sides) -> Any:
    """AutoGluon in its own environment; with `medium_quality` it has Loopline's CPU-seconds."""
    inputs, goal = sides.both()
    limit_s = sides.limit_s if preset == "medium_quality" else 0.0
    with tempfile.TemporaryDirectory(prefix="loopline-autogluon-") as name:
        folder = Path(name)
        inputs.assign(**{case.target: goal}).to_parquet(folder / "both.parquet")
        sides.inputs["test"].to_parquet(folder / "test.parquet")
        _apart("quality_autogluon.py", sides.python, folder, case.target, case.metric, str(limit_s), preset)
        predicted = pd.read_parquet(folder / "predicted.parquet")
    return predicted["value"].to_numpy() if sides.is_number else predicted


def forecasts(method: str, case: Case, sides: Sides) -> Any:
    """One step ahead by statsmodels in its own environment, fitted on training and validation steps of each series."""
    tests = sides.targets["test"]
    predicted = np.empty(len(tests))
    with tempfile.TemporaryDirectory(prefix="loopline-forecasts-") as name:
        for number, key in enumerate(tests.index.unique()):
            first = sides.inputs["train"][sides.targets["train"].index == key][0, :, 0]
            values = [sides.targets[side].loc[[key]].to_numpy() for side in SIDES]
            np.save(Path(name) / f"{number}-{len(values[-1])}.npy", np.concatenate([first, *values]))
        _apart("quality_forecasts.py", sides.python, Path(name), method, str(case.season))
        for number, key in enumerate(tests.index.unique()):
            predicted[tests.index == key] = np.load(Path(name) / f"predicted-{number}.npy")
    return predicted


def _apart(script: str, python: str, folder: Path, *arguments: str) -> None:
    """Run a script of this folder in the environment of a peer."""
    # -P: the folder of the script has modules named like those of the standard library.
    command = [python, "-P", Path(__file__).with_name(script), folder, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def _for_trees(case: Case, sides: Sides) -> tuple[list[Any], list[Any], Any]:
    """Return the inputs of the three sides, the goals of the first two, and what is added to the predictions."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    parts = [sides.inputs[side] for side in ("train", "validation", "test")]
    goals: list[Any] = [sides.targets[side] for side in ("train", "validation")]
    if case.text:
        fitted = encoder(case, parts[0], TfidfVectorizer()).fit(parts[0])
        return [fitted.transform(part).astype(np.float32) for part in parts], goals, 0.0
    if case.kind == "series":
        return from_the_end(parts, goals)
    return categorical(parts) if case.kind == "table" else parts, goals, 0.0


def _linear(case: Case, sides: Sides, vectors: Any, inverse_penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    inputs, goal = sides.both()
    tests = sides.inputs["test"]
    if case.kind == "series":
        (inputs, tests), (goal,), last = from_the_end([inputs, tests], [goal])
        return Ridge().fit(inputs, goal).predict(tests) + last
    if case.is_image:
        inputs, tests = pd.DataFrame(inputs), pd.DataFrame(tests)
    columns = encoder(case, inputs, vectors) if case.text else standard(inputs)
    if sides.is_number:
        return make_pipeline(columns, Ridge()).fit(inputs, goal).predict(tests)
    model = make_pipeline(columns, LogisticRegression(C=inverse_penalty, max_iter=2000)).fit(inputs, goal)
    return probabilities(model, tests)


_OF_TREES = ("table", "text", "series")
_SKLEARN = ("sklearn.compose", "sklearn.impute", "sklearn.linear_model", "sklearn.pipeline")
_OF_PICTURES = ("sklearn.ensemble", "sklearn.svm", "sklearn.pipeline", "sklearn.preprocessing")
PEERS: Mapping[str, Peer] = {
    "LightGBM": Peer(lightgbm, (*_OF_TREES, "image"), ("lightgbm",)),
    "HGB": Peer(hgb, ("table", "series", "image"), ("sklearn.ensemble",)),
    "linear": Peer(linear, (*_OF_TREES, "image"), _SKLEARN),
    "last value": Peer(last_value, ("series",)),
    "seasonal naive": Peer(seasonal, ("series",), needs_season=True),
    "XGBoost": Peer(xgboost, _OF_TREES, ("xgboost", "sklearn.base")),
    "CatBoost": Peer(catboost, _OF_TREES, ("catboost",)),
    "words and characters": Peer(words_and_characters, ("table", "text"), _SKLEARN, needs_text=True),
    "forest on pixels": Peer(pictures.forest, ("image",), _OF_PICTURES),
    "HOG + SVM": Peer(pictures.svm, ("image",), _OF_PICTURES),
    "HOG + LightGBM": Peer(pictures.lightgbm, ("image",), ("lightgbm",)),
    "ETS": Peer(lambda case, sides: forecasts("ets", case, sides), ("series",), python="statsmodels"),
    "ARIMA": Peer(lambda case, sides: forecasts("arima", case, sides), ("series",), python="statsmodels"),
    "AutoGluon": Peer(
        lambda case, sides: autogluon("medium_quality", case, sides), ("table", "text"), python="autogluon"
    ),
    "AutoGluon good": Peer(
        lambda case, sides: autogluon("good_quality", case, sides), ("table", "text"), python="autogluon"
    ),
}
"""The peers by name; the last of them in environments of their own, whose packages do not fit the lock."""
