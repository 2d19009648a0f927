"""AutoGluon as it comes, in an environment of its own: its packages do not fit the lock.

    PYTHON_OF_THAT_ENVIRONMENT quality_autogluon.py FOLDER TARGET METRIC LIMIT_S PRESET

FOLDER holds both.parquet and test.parquet; predicted.parquet is written beside them: the column `value`, or a column
for each class. The fit may take LIMIT_S CPU-seconds, its imports not counted; 0 is no limit.
`pip install "autogluon.tabular[lightgbm,catboost,xgboost,fastai]"` makes the environment, with all that the preset asks
for.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

METRICS = {"roc_auc": "roc_auc", "accuracy": "accuracy", "mae": "mean_absolute_error"}


def main() -> None:
    """Fit and predict on one CPU; at the limit AutoGluon keeps what it has. Without a limit it has its own defaults."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import pandas as pd
    from autogluon.tabular import TabularPredictor  # type: ignore[import-not-found]

    folder, target, metric, limit_s, preset = (
        Path(sys.argv[1]),
        sys.argv[2],
        sys.argv[3],
        float(sys.argv[4]),
        sys.argv[5],
    )
    both, test = pd.read_parquet(folder / "both.parquet"), pd.read_parquet(folder / "test.parquet")
    task = {"mae": "regression"}.get(metric)  # it takes few whole numbers for classes
    predictor = TabularPredictor(target, task, METRICS[metric], path=str(folder / "models"), verbosity=0)
    about: dict[str, object] = {}
    if limit_s:
        time.time = _cpu_s  # the clock of its limit: the budget is the same on a busy machine
        about = {"time_limit": limit_s}
    predictor.fit(both, presets=preset, num_cpus=1, num_gpus=0, **about)
    is_number = metric == "mae"
    made = predictor.predict(test).to_frame("value") if is_number else predictor.predict_proba(test)
    made.to_parquet(folder / "predicted.parquet")


def _cpu_s() -> float:
    """Return the CPU-seconds of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
