"""The peers of the comparison of defaults, each as a user would take it untouched, on one thread.

LightGBM stops early on the validation rows; the others are fitted on training and validation rows together. Each
returns its predictions for the test rows: numbers, or probabilities with the classes as columns; None if it does not
apply.
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

from tests.bench.quality_data import Case


class Sides(NamedTuple):
    """Inputs and targets of the three sides of a split; the inputs of a series are its windows.

    `limit_s` is what Loopline took on this split, in CPU-seconds, for a peer that takes a limit.
    """

    inputs: Mapping[str, Any]
    targets: Mapping[str, pd.Series]
    limit_s: float

    @property
    def is_number(self) -> bool:
        """Whether the target is a number."""
        return self.targets["train"].dtype.kind in "iuf"

    def both(self) -> tuple[Any, pd.Series]:
        """Return inputs and targets of training and validation rows."""
        inputs = [self.inputs[side] for side in ("train", "validation")]
        joined = pd.concat(inputs) if isinstance(inputs[0], pd.DataFrame) else np.concatenate(inputs)
        return joined, pd.concat([self.targets["train"], self.targets["validation"]])


Peer = Callable[[Case, Sides], Any]


def lightgbm(case: Case, sides: Sides) -> Any:
    """LightGBM, learning rate .05, early stopping after 50 rounds; texts as TF-IDF, series as changes from the end."""
    import lightgbm as library

    parts = [sides.inputs[side] for side in ("train", "validation", "test")]
    if case.kind == "text":
        vectors = _tf_idf(case).fit(parts[0][case.text])
        parts = [vectors.transform(part[case.text]).astype(np.float32) for part in parts]
    elif case.kind == "table":
        parts = _categorical(parts)
    goals = [sides.targets[side] for side in ("train", "validation")]
    last: Any = 0.0
    if case.kind == "series":
        goals = [goal.to_numpy() - part[:, -1] for goal, part in zip(goals, parts, strict=False)]
        last = parts[2][:, -1]
        parts = [part - part[:, -1:] for part in parts]
    settings = {"n_estimators": 1000, "learning_rate": 0.05, "n_jobs": 1, "verbosity": -1}
    warnings.filterwarnings("ignore", "The argument 'eval_set' is deprecated")  # its successor takes no class names
    stop = {"eval_set": [(parts[1], goals[1])], "callbacks": [library.early_stopping(50, verbose=False)]}
    if sides.is_number:
        model = library.LGBMRegressor(objective="l1", **settings).fit(parts[0], goals[0], **stop)
        return model.predict(parts[2]) + last
    model = library.LGBMClassifier(**settings).fit(parts[0], goals[0], **stop)
    return pd.DataFrame(model.predict_proba(parts[2]), columns=model.classes_)


def hgb(case: Case, sides: Sides) -> Any:
    """scikit-learn's histogram gradient boosting with its defaults, which stops early above 10,000 rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if case.kind == "text":
        return None  # it takes no sparse matrix
    inputs, goal = sides.both()
    tests = sides.inputs["test"]
    if case.kind == "table":
        inputs, tests = _categorical([inputs, tests])
    last: Any = 0.0
    if case.kind == "series":
        goal, last = goal.to_numpy() - inputs[:, -1], tests[:, -1]
        inputs, tests = inputs - inputs[:, -1:], tests - tests[:, -1:]
    if sides.is_number:
        return HistGradientBoostingRegressor(categorical_features="from_dtype").fit(inputs, goal).predict(tests) + last
    model = HistGradientBoostingClassifier(categorical_features="from_dtype").fit(inputs, goal)
    return pd.DataFrame(model.predict_proba(tests), columns=model.classes_)


def linear(case: Case, sides: Sides) -> Any:
    """Logistic or ridge regression: on TF-IDF of texts, on standardised numbers and one-hot categories, on windows."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline

    inputs, goal = sides.both()
    tests = sides.inputs["test"]
    if case.kind == "text":
        inputs, tests = inputs[case.text], tests[case.text]
    if case.kind == "series":
        moved = Ridge().fit(inputs - inputs[:, -1:], goal.to_numpy() - inputs[:, -1]).predict(tests - tests[:, -1:])
        return moved + tests[:, -1]
    encoder = _tf_idf(case) if case.kind == "text" else _standard(pd.DataFrame(inputs))
    if case.kind == "image":
        inputs, tests = pd.DataFrame(inputs), pd.DataFrame(tests)
    if sides.is_number:
        return make_pipeline(encoder, Ridge()).fit(inputs, goal).predict(tests)
    model = make_pipeline(encoder, LogisticRegression(max_iter=2000)).fit(inputs, goal)
    return pd.DataFrame(model.predict_proba(tests), columns=model.classes_)


def last_value(case: Case, sides: Sides) -> Any:
    """The last value of the window, for series."""
    return sides.inputs["test"][:, -1] if case.kind == "series" else None


def seasonal(case: Case, sides: Sides) -> Any:
    """The value of a season ago, for series."""
    return sides.inputs["test"][:, -case.season] if case.season else None


def autogluon(python: str, case: Case, sides: Sides) -> Any:
    """AutoGluon's `medium_quality` with Loopline's CPU-seconds, in its own environment, for tables and texts."""
    if case.kind not in ("table", "text"):
        return None
    script = Path(__file__).with_name("quality_autogluon.py")
    inputs, goal = sides.both()
    with tempfile.TemporaryDirectory(prefix="loopline-autogluon-") as name:
        folder = Path(name)
        inputs.assign(**{case.target: goal}).to_parquet(folder / "both.parquet")
        sides.inputs["test"].to_parquet(folder / "test.parquet")
        # -P: the folder of the script has modules named like those of the standard library.
        command = [python, "-P", script, folder, case.target, case.metric, str(sides.limit_s)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{script.name}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        predicted = pd.read_parquet(folder / "predicted.parquet")
    return predicted["value"].to_numpy() if sides.is_number else predicted


IMPORTS = {
    "LightGBM": ("lightgbm",),
    "HGB": ("sklearn.ensemble",),
    "linear": ("sklearn.compose", "sklearn.impute", "sklearn.linear_model", "sklearn.pipeline"),
}
"""What a peer imports, by its name: it is not counted as its fit."""
PEERS: dict[str, Peer] = {
    "LightGBM": lightgbm,
    "HGB": hgb,
    "linear": linear,
    "last value": last_value,
    "seasonal naive": seasonal,
}


def _tf_idf(case: Case) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    del case
    return TfidfVectorizer()


def _categorical(frames: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Return the frames with texts as categories that all of them share."""
    texts = [name for name in frames[0] if frames[0][name].dtype.kind not in "iufb"]
    known = {name: pd.CategoricalDtype(sorted(frames[0][name].dropna().astype(str).unique())[:250]) for name in texts}
    return [
        frame.assign(**{name: frame[name].astype(str).astype(dtype) for name, dtype in known.items()})
        for frame in frames
    ]


def _standard(frame: pd.DataFrame) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [name for name in frame if frame[name].dtype.kind in "iufb"]
    texts = [name for name in frame if name not in numbers]
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), texts),
    )
