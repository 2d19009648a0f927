"""Texts: the features of a text column, with LightGBM behind them, beside scikit-learn's TF-IDF and a linear model.

    python -m tests.bench.texts FILE.csv...

Each file has the columns `text` and `y`: classes, or numbers. Prints accuracy (or mean absolute error) on 15 % of the
rows, with the standard error of the difference, and CPU-seconds, over three splits.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split

from models.ngrams.fit import fit_ngrams, ngram_features

SEEDS = 3


def _ours(train: list[str], test: list[str], y: np.ndarray, is_class: bool) -> np.ndarray:
    learnt = fit_ngrams(train, y, is_class)
    assert learnt is not None
    kind = lightgbm.LGBMClassifier if is_class else lightgbm.LGBMRegressor
    trees = kind(n_estimators=100, learning_rate=0.05, num_leaves=15, verbose=-1, n_jobs=1)
    return np.asarray(trees.fit(learnt[1], y).predict(ngram_features(learnt[0], test)))


def _theirs(train: list[str], test: list[str], y: np.ndarray, is_class: bool) -> np.ndarray:
    vectors = TfidfVectorizer()
    model = LogisticRegression(max_iter=300) if is_class else Ridge()
    return np.asarray(model.fit(vectors.fit_transform(train), y).predict(vectors.transform(test)))


def main(files: list[str]) -> None:
    """Print one line for each file and split."""
    for file in files:
        table = pd.read_csv(file).dropna()
        is_class = not pd.api.types.is_float_dtype(table["y"])
        y = np.unique(table["y"], return_inverse=True)[1] if is_class else table["y"].to_numpy()
        for seed in range(SEEDS):
            rows = train_test_split(
                np.arange(len(y)), test_size=0.15, random_state=seed, stratify=y if is_class else None
            )
            train, test = (table["text"].iloc[part].tolist() for part in rows)
            values, cost = [], []
            for method in (_ours, _theirs):
                start = time.process_time()
                predicted = method(train, test, y[rows[0]], is_class)
                cost.append(time.process_time() - start)
                values.append(predicted == y[rows[1]] if is_class else np.abs(predicted - y[rows[1]]))
            apart = np.asarray(values[0], float) - values[1]
            gain = f"{apart.mean():+.4f} +- {apart.std() / len(apart) ** 0.5:.4f}"
            print(
                f"{Path(file).stem:10} {'accuracy' if is_class else 'MAE':8} seed {seed}: {np.mean(values[0]):.4f} "
                f"{cost[0]:5.1f} s, TF-IDF {np.mean(values[1]):.4f} {cost[1]:4.1f} s, apart {gain}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
