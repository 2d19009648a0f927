"""AutoGluon as it comes, in an environment of its own: its packages do not fit the lock.

    PYTHON_OF_THAT_ENVIRONMENT quality_autogluon.py FOLDER TARGET METRIC

FOLDER holds both.parquet and test.parquet; predicted.parquet is written beside them: the column `value`, or a column
for each class. `pip install "autogluon.tabular[lightgbm]"` makes the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

LIMIT_S = 120
METRICS = {"roc_auc": "roc_auc", "accuracy": "accuracy", "mae": "mean_absolute_error"}


def main() -> None:
    """Fit and predict; one CPU, at most `LIMIT_S` seconds, after which AutoGluon keeps what it has."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import pandas as pd
    from autogluon.tabular import TabularPredictor  # type: ignore[import-not-found]

    folder, target, metric = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    both, test = pd.read_parquet(folder / "both.parquet"), pd.read_parquet(folder / "test.parquet")
    predictor = TabularPredictor(target, eval_metric=METRICS[metric], path=str(folder / "models"), verbosity=0)
    predictor.fit(both, time_limit=LIMIT_S, num_cpus=1, num_gpus=0)
    is_number = metric == "mae"
    made = predictor.predict(test).to_frame("value") if is_number else predictor.predict_proba(test)
    made.to_parquet(folder / "predicted.parquet")


if __name__ == "__main__":
    main()
