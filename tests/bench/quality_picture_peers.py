"""The simple peers of the comparison's pictures: a forest on pixels, HOG and colour with a machine or with trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.bench.quality_case import Case
from tests.bench.quality_sides import Sides, numbered, probabilities

NUM_BINS, NUM_LEVELS = 9, 8
SMALL = 16
"""Pixels of a side, below which cells have two pixels in place of four."""


def forest(case: Case, sides: Sides) -> Any:
    """A random forest of 300 trees on the pixels."""
    from sklearn.ensemble import RandomForestClassifier

    del case
    inputs, goal = sides.both()
    return probabilities(RandomForestClassifier(300, random_state=0, n_jobs=1).fit(inputs, goal), sides.inputs["test"])


def svm(case: Case, sides: Sides) -> Any:
    """A support vector machine with the radial kernel on HOG and a histogram of each channel."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    inputs, goal = sides.both()
    model = make_pipeline(StandardScaler(), SVC(C=10.0)).fit(hog(case, inputs), goal)
    scores = model.decision_function(hog(case, sides.inputs["test"]))
    return _shares(scores, model.classes_)


def lightgbm(case: Case, sides: Sides) -> Any:
    """LightGBM on HOG and a histogram of each channel, learning rate .05, early stopping after 50 rounds."""
    import lightgbm as library

    parts = [hog(case, sides.inputs[side]) for side in ("train", "validation", "test")]
    classes, goals = numbered([sides.targets[side] for side in ("train", "validation")])
    seen = goals[1] >= 0
    model = library.LGBMClassifier(n_estimators=1000, learning_rate=0.05, n_jobs=1, verbosity=-1)
    stop = [library.early_stopping(50, verbose=False)]
    model.fit(parts[0], goals[0], eval_set=[(parts[1][seen], goals[1][seen])], callbacks=stop)
    made = probabilities(model, parts[2])
    made.columns = classes[np.asarray(made.columns)]
    return made


def hog(case: Case, pixels: np.ndarray) -> np.ndarray:
    """Return oriented gradients in cells of two or four pixels, and levels of each channel, (picture, feature).

    Source: Dalal and Triggs, Histograms of Oriented Gradients for Human Detection (2005), with blocks of 2 by 2 cells.
    """
    pictures = pixels.reshape(-1, *case.size) / 255
    down, right = np.gradient(pictures, axis=(1, 2))
    strength = np.hypot(down, right)
    strongest = strength.argmax(axis=3)[..., None]
    down, right, strength = (np.take_along_axis(part, strongest, 3)[..., 0] for part in (down, right, strength))
    bins = np.minimum((np.arctan2(down, right) % np.pi) / np.pi * NUM_BINS, NUM_BINS - 1).astype(int)
    cell = 2 if min(case.size[:2]) < SMALL else 4
    high, wide = case.size[0] // cell, case.size[1] // cell
    cells = np.zeros((len(pictures), high, wide, NUM_BINS))
    for place in range(NUM_BINS):
        of_bin = np.where(bins == place, strength, 0)[:, : high * cell, : wide * cell]
        cells[..., place] = of_bin.reshape(-1, high, cell, wide, cell).sum(axis=(2, 4))
    corners = [cells[:, row : high - 1 + row, column : wide - 1 + column] for row in (0, 1) for column in (0, 1)]
    blocks = np.concatenate(corners, axis=3)
    blocks /= np.linalg.norm(blocks, axis=3, keepdims=True) + 1e-6
    levels = np.minimum(pictures * NUM_LEVELS, NUM_LEVELS - 1).astype(int)
    shares = [(levels == place).mean(axis=(1, 2)) for place in range(NUM_LEVELS)]
    return np.hstack([blocks.reshape(len(pictures), -1), *shares])


def _shares(scores: np.ndarray, classes: np.ndarray) -> Any:
    """Return what grows with the scores of a machine, a column a class: it has no probabilities."""
    import pandas as pd

    columns = scores if scores.ndim == 2 else np.stack([-scores, scores], axis=1)
    return pd.DataFrame(columns, columns=classes)
