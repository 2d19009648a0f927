"""The default net for series against the last value, the seasonal value, and gradient boosting on the same lags.

    python -m tests.bench.series FOLDER

FOLDER holds one CSV file for each series, with the columns `time` and `y`. Each is split by time as by default, and the
mean absolute error on its test steps is printed, one step ahead. `before` is the same net without a reference.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pyarrow.csv
import torch

from models.data.encode import write_tensors
from models.data.feeds import feeds, targets
from models.data.preparation import Preparation
from models.data.prepare import prepare_table, write_rows
from models.export.trained import net_of
from models.judge.held_out import naive_forecasts
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.project_spec.blocks import Spec
from models.training.batches.examples import open_examples
from models.training.job import TrainingJob
from models.training.optimisation.losses import predictions
from models.training.rank import run_job

SEEDS = 3
LEAST_LENGTH = 8
_SEASONS = {"hour": 24, "30 minutes": 48, "day": 7, "month": 12, "quarter": 4}


def main() -> None:
    """Print a row for each series."""
    torch.set_num_threads(1)
    names = ("last", "seasonal", "default", "reference", "before", "lightgbm")
    print("| series | steps | frequency | reference | " + " | ".join(names) + " |")
    for path in [Path(sys.argv[1])] if sys.argv[1].endswith(".csv") else sorted(Path(sys.argv[1]).glob("*.csv")):
        errors, facts = compare(path)
        print(f"| {path.stem} | {facts} | " + " | ".join(f"{errors[name]:.4g}" for name in names) + " |", flush=True)


def compare(path: Path) -> tuple[dict[str, float], str]:
    """Return the mean absolute error of each forecast on the test steps, and facts about the series."""
    with tempfile.TemporaryDirectory() as folder:
        prepared, preparation = _prepared(path, Path(folder) / "default")
        target = targets(prepared, "test")
        naive = {each.name: np.abs(each.prediction - target).mean() for each in naive_forecasts(prepared, preparation)}
        values = [*naive.values(), float("nan")]
        errors = {"last": values[0], "seasonal": values[1], "lightgbm": _boosted(prepared, preparation)}
        errors["default"], errors["reference"] = _trained(prepared, preparation, Path(folder))
        plain, of_plain = _prepared(path, Path(folder) / "plain", reference="none")
        errors["before"], _ = _trained(plain, of_plain, Path(folder))
        assert preparation.series is not None
        assert preparation.reference is not None
        kind = preparation.reference.kind + (", scaled" if preparation.reference.is_scaled else "")
        return errors, f"{sum(preparation.rows.values())} | {preparation.series.frequency} | {kind}"


def _prepared(path: Path, folder: Path, **window: Any) -> tuple[Path, Preparation]:
    table = pyarrow.csv.read_csv(path)
    spec = {
        "name": "bench",
        "data": {
            "source": str(path),
            "target": "y",
            "kind": "series",
            "window": {"length": _length(table), **window},
            "split": {"by": "time", "column": "time"},
        },
    }
    rows, preparation = prepare_table(table, Spec.model_validate(spec), Path())
    folder.mkdir(parents=True)
    write_rows(rows, preparation, folder)
    return folder, preparation


def _length(table: Any) -> int:
    """Three seasons, if the frequency has one."""
    from models.data.series import series_rows
    from models.project_spec.window import Window

    frequency = series_rows(table, Window(length=1), "time").frequency.text
    return max(LEAST_LENGTH, 3 * _SEASONS.get(frequency, 0))


def _trained(prepared: Path, preparation: Preparation, folder: Path) -> tuple[float, float]:
    """Return the error of the default net, the mean over seeds, and that of its reference alone."""
    tensors = write_tensors(prepared, prepared / "tensors")
    errors = []
    for seed in range(SEEDS):
        spec = Spec.model_validate({"name": "bench", "data": {"source": "x", "target": "y"}, "train": {"seed": seed}})
        job = TrainingJob(
            folder=folder / f"{prepared.name}-{seed}",
            prepared=prepared,
            tensors=tensors,
            project=folder,
            model=spec.model,
            train=spec.train,
            metric="mae",
            direction="minimize",
        )
        run_job(job)
        errors.append(_error(net_of(job, preparation), job, preparation))
    return float(np.mean(errors)), _error(build_net(job.model, Sizes.of(preparation), folder), job, preparation)


def _error(net: torch.nn.Module, job: TrainingJob, preparation: Preparation) -> float:
    tests = job.model_copy(update={"tensors": {**job.tensors, "validation": job.tensors["test"]}})
    examples = open_examples(tests, preparation)[1]
    net.eval()
    with torch.inference_mode():
        output = net(**examples.gather(torch.arange(len(examples))))
    return float(np.abs(predictions(output, preparation) - examples.values()).mean())


def _boosted(prepared: Path, preparation: Preparation) -> float:
    """Return the error of LightGBM, early stopping on validation, on the window and its differences from its end."""
    inputs = {split: _lags(prepared, split, preparation) for split in ("train", "validation", "test")}
    labels = {split: targets(prepared, split) for split in inputs}
    last = {split: values[:, -1] for split, values in inputs.items()}
    sets = {split: lightgbm.Dataset(inputs[split], labels[split] - last[split]) for split in ("train", "validation")}
    booster = lightgbm.train(
        {"objective": "l1", "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5, "learning_rate": 0.05},
        sets["train"],
        500,
        valid_sets=[sets["validation"]],
        callbacks=[lightgbm.early_stopping(30, verbose=False)],
    )
    return float(np.abs(booster.predict(inputs["test"]) + last["test"] - labels["test"]).mean())


def _lags(prepared: Path, split: str, preparation: Preparation) -> np.ndarray:
    windows = np.concatenate([feed["series"] for feed in feeds(prepared, split, preparation)])[:, :, 0]
    return np.hstack([windows - windows[:, -1:], windows[:, -1:]])


if __name__ == "__main__":
    main()
