"""The work of `loopline run flights` by hand: the same data, checks, trials, training and verdict, the same libraries.

No part of Loopline is imported. It reads the project's own source and nothing else of it. It has no versions of data,
no orchestration, no resume, no records: what Loopline's glue is for, and is measured against.

    python -m tests.bench.bare_flights --packages CACHE --out FOLDER
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.bench.bare_data import (
    CATEGORICAL,
    NUMERIC,
    TARGET,
    TEST,
    TIME,
    VALIDATION,
    check_prepared,
    check_raw,
    encode,
    prepare,
    read_raw,
)

SETTINGS: dict[str, Any] = {
    "goal.metric": "roc_auc",
    "goal.good_enough": 0.70,
    "data.target": TARGET,
    "data.split.by": "time",
    "data.split.column": TIME,
    "data.split.validation": VALIDATION,
    "data.split.test": TEST,
    "model.net": "mlp",
    "model.arguments": {"hidden": 256, "layers": 2, "dropout": 0.2},
    "search.trials": 6,
    "search.epochs": 2,
    "search.sample": 0.3,
    "search.space": {
        "train.lr": {"low": 0.0003, "high": 0.01, "log": True},
        "train.weight_decay": {"low": 0.00001, "high": 0.1, "log": True},
        "model.hidden": {"choices": [128, 256]},
        "model.dropout": {"low": 0.0, "high": 0.5},
    },
    "train.epochs": 6,
    "train.batch": 1024,
    "train.lr": 0.002,
    "train.patience": 3,
    "judge.margin": 0.005,
    "judge.min_samples": 1000,
    "judge.slices": ["carrier", "origin"],
}
"""The values of projects/flights/project.yaml that this script works with; `make bench` says so when they differ."""

WARMUP, CLIP, SEED, RESAMPLES = 0.05, 1.0, 0, 1000
EXPERIMENT = MODEL = "flights"


# Training


def build_net(cardinalities: list[int], hidden: int, layers: int, dropout: float) -> Any:
    """Embeddings and an MLP with batch norm."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            dims = [min(50, max(2, round(1.6 * count**0.56))) for count in cardinalities]
            self.embeddings = nn.ModuleList(nn.Embedding(*pair) for pair in zip(cardinalities, dims, strict=True))
            for weight in self.embeddings.parameters():
                nn.init.normal_(weight, std=0.05)
            width, blocks = len(NUMERIC) + sum(dims), []
            for _ in range(layers):
                blocks += [nn.Linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(dropout)]
                width = hidden
            self.trunk = nn.Sequential(*blocks, nn.Linear(width, 1))

        def forward(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
            embedded = [embed(categorical[:, i]) for i, embed in enumerate(self.embeddings)]
            return self.trunk(torch.cat([numeric, *embedded], dim=1))

    return Net()


def train(
    splits: dict[str, dict[str, Any]], settings: dict[str, Any], epochs: int, sample: float, after_epoch: Any
) -> tuple[Any, float]:
    """Train a net; gives that of the best epoch and its AUC on validation. `after_epoch` says whether to go on."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(SEED)
    numeric, categorical, target = (splits["train"][name] for name in ("numeric", "categorical", "target"))
    cardinalities = [int(categorical[:, i].max()) + 1 for i in range(categorical.shape[1])]
    net = build_net(cardinalities, settings["model.hidden"], settings["model.layers"], settings["model.dropout"])
    matrices = [weight for weight in net.parameters() if weight.ndim >= 2]
    vectors = [weight for weight in net.parameters() if weight.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings["train.weight_decay"]},
        {"params": vectors, "weight_decay": 0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=settings["train.lr"], fused=True)
    kept = torch.randperm(len(target))[: round(sample * len(target))] if sample < 1 else torch.arange(len(target))
    batch = SETTINGS["train.batch"]
    num_steps = len(kept) // batch + (len(kept) % batch >= batch // 8)
    step, best, best_net, since = 0, -math.inf, None, 0
    for epoch in range(epochs):
        net.train()
        order, loss_sum = kept[torch.randperm(len(kept))], torch.zeros(())
        for index in range(num_steps):
            end = len(kept) if index == num_steps - 1 else (index + 1) * batch
            at = order[index * batch : end]
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(settings["train.lr"], step, epochs * num_steps)
            output = net(numeric.index_select(0, at), categorical.index_select(0, at).long())
            loss = F.binary_cross_entropy_with_logits(output[:, 0], target.index_select(0, at).float())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            loss_sum += loss.detach() * len(at)
            step += 1
        val_loss, auc = evaluate(net, splits["validation"])
        since += 1
        if auc > best:
            best, best_net, since = auc, copy.deepcopy(net), 0
        values = {"train_loss": float(loss_sum) / len(kept), "val_loss": val_loss, "val_roc_auc": auc}
        if not after_epoch(epoch + 1, values, since):
            break
    return best_net.eval(), best


def learning_rate(peak: float, step: int, num_steps: int) -> float:
    """A short linear rise, then a cosine down to zero."""
    rise = round(WARMUP * num_steps)
    if step < rise:
        return peak * (step + 1) / (rise + 1)
    return peak * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, num_steps - rise)))


def evaluate(net: Any, split: dict[str, Any]) -> tuple[float, float]:
    """Log loss and AUC."""
    import torch
    import torch.nn.functional as F

    net.eval()
    with torch.no_grad():
        pairs = zip(split["numeric"].split(4096), split["categorical"].split(4096), strict=True)
        output = torch.cat([net(numeric, categorical.long())[:, 0] for numeric, categorical in pairs])
        loss = F.binary_cross_entropy_with_logits(output, split["target"].float())
    return float(loss), auc_of(split["target"].numpy(), output.double().sigmoid().numpy())(None)


def search(splits: dict[str, Any], mlflow: Any, whole: bool) -> dict[str, Any]:
    """Optuna's trials; the best settings."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.NopPruner() if whole else optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    for number in range(SETTINGS["search.trials"]):
        # The same draws as Loopline's, so that both train nets of the same size.
        study.sampler = optuna.samplers.TPESampler(seed=zlib.crc32(f"{SEED}/{number}".encode()))
        trial = study.ask()
        drawn = {path: draw(trial, path, one) for path, one in SETTINGS["search.space"].items()}
        with mlflow.start_run(run_name=f"trial-{number}", nested=True):
            mlflow.log_params(drawn)

            def after_epoch(epoch: int, values: dict[str, float], _: int, trial: Any = trial) -> bool:
                mlflow.log_metrics(values, step=epoch)
                trial.report(values["val_roc_auc"], epoch)
                return not trial.should_prune()

            _, value = train(
                splits, settings_of(drawn), SETTINGS["search.epochs"], SETTINGS["search.sample"], after_epoch
            )
        study.tell(trial, value)
    return dict(study.best_params)


def draw(trial: Any, path: str, one: dict[str, Any]) -> Any:
    """One value of the search space."""
    if "choices" in one:
        return trial.suggest_categorical(path, one["choices"])
    return trial.suggest_float(path, one["low"], one["high"], log=one.get("log", False))


def settings_of(drawn: dict[str, Any]) -> dict[str, Any]:
    """The spec's settings with drawn ones in their place."""
    given = {f"model.{name}": value for name, value in SETTINGS["model.arguments"].items()}
    return {**given, "train.lr": SETTINGS["train.lr"], "train.weight_decay": 0.01, **drawn}


# Export and verdict


def export(net: Any, splits: dict[str, Any], path: Path) -> np.ndarray:
    """Write the net as ONNX, compare it with torch on validation rows, and predict the test rows with it."""
    import onnxruntime
    import torch

    rows = torch.export.Dim("batch")
    example = {name: splits["train"][name][:3] for name in ("numeric", "categorical")}
    example["categorical"] = example["categorical"].long()
    shapes = {name: {0: rows} for name in example}
    program = torch.onnx.export(net, (), kwargs=example, dynamo=True, dynamic_shapes=shapes, verbose=False)
    program.save(str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def predict(split: dict[str, Any]) -> np.ndarray:
        feed = {"numeric": split["numeric"].numpy(), "categorical": split["categorical"].long().numpy()}
        return 1 / (1 + np.exp(-session.run(None, feed)[0][:, 0].astype(np.float64)))

    few = {name: tensor[:2000] for name, tensor in splits["validation"].items()}
    with torch.no_grad():
        expected = net(few["numeric"], few["categorical"].long())[:, 0].double().sigmoid().numpy()
    assert np.abs(predict(few) - expected).max() < 1e-4
    one = {name: tensor[:1] for name, tensor in few.items()}
    seconds = []
    for _ in range(220):
        start = time.perf_counter()
        predict(one)
        seconds.append(time.perf_counter() - start)
    print(f"latency {np.median(seconds) * 1e3:.3f} ms")
    return predict(splits["test"])


def auc_of(target: np.ndarray, score: np.ndarray) -> Any:
    """The AUC as a function of the examples' weights (None: once each); sorted once."""
    order = np.argsort(score, kind="stable")
    hits, misses = order[target[order] == 1], order[target[order] == 0]
    under = np.searchsorted(score[misses], score[hits], side="left")
    ends_with_parent = np.searchsorted(score[misses], score[hits], side="right")

    def value(weight: np.ndarray | None) -> float:
        weight = np.ones(len(target)) if weight is None else weight
        below = np.concatenate([[0.0], np.cumsum(weight[misses])])
        won = weight[hits]
        pairs = won.sum() * below[-1]
        return float(won @ (below[under] + below[ends_with_parent]) / 2 / pairs) if pairs else math.nan

    return value


def interval(target: np.ndarray, score: np.ndarray) -> tuple[float, float, float]:
    """The AUC with its bootstrap interval."""
    auc, rng, count = auc_of(target, score), np.random.default_rng(SEED), len(target)
    drawn = [auc(np.bincount(rng.integers(0, count, count), minlength=count).astype(float)) for _ in range(RESAMPLES)]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return auc(None), float(low), float(high)


def judge(rows: pd.DataFrame, target: np.ndarray, score: np.ndarray) -> dict[str, Any]:
    """The AUC against the goal and against guessing, and of every slice. A constant's AUC is 0.5 on any resample."""
    value, low, high = interval(target, score)
    test, slices = rows[rows.split == 2], {}
    for column in SETTINGS["judge.slices"]:
        for name, place in test.groupby(column).indices.items():
            if len(place) >= 30:
                slices[f"{column}={name}"] = interval(target[place], score[place])
    enough = len(target) >= SETTINGS["judge.min_samples"]
    promoted = bool(enough and value >= SETTINGS["goal.good_enough"] and low > 0.5)
    return {"value": value, "low": low, "high": high, "slices": slices, "promoted": promoted}


def draw_figures(target: np.ndarray, score: np.ndarray, verdict: dict[str, Any], history: list[Any], out: Path) -> None:
    """Learning curves, ROC, precision and recall, confusion, calibration, slices: as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    def save(name: str, *lines: tuple[Any, Any, str]) -> None:
        figure, axes = plt.subplots()
        for x, y, label in lines:
            axes.plot(x, y, label=label)
        axes.legend()
        figure.savefig(out / f"{name}.svg")
        plt.close(figure)

    epochs = range(1, len(history) + 1)
    save("learning", *((epochs, [values[key] for values in history], key) for key in ("train_loss", "val_loss")))
    ranked = target[np.argsort(-score)]
    hits, called = np.cumsum(ranked), np.arange(1, len(ranked) + 1)
    save("roc", ((called - hits) / (1 - ranked).sum(), hits / hits[-1], "ROC"))
    save("precision-recall", (hits / hits[-1], hits / called, "precision"))
    edges = np.linspace(0, 1, 11)
    place = np.digitize(score, edges[1:-1])
    seen = [target[place == i].mean() if (place == i).any() else np.nan for i in range(10)]
    save("calibration", (edges[:-1] + 0.05, seen, "observed"))
    names = list(verdict["slices"])
    save("slices", (names, [verdict["slices"][name][0] for name in names], "AUC"))
    counts = np.histogram2d(target, score > 0.5, bins=2)[0]
    figure, axes = plt.subplots()
    axes.imshow(counts)
    figure.savefig(out / "confusion.svg")
    plt.close(figure)


# The whole


def register(mlflow: Any, path: Path, verdict: dict[str, Any]) -> None:
    """The model as a registered version, with the champion's alias if it was promoted."""
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    inputs = [
        TensorSpec(np.dtype(np.float32), (-1, len(NUMERIC)), "numeric"),
        TensorSpec(np.dtype(np.int64), (-1, len(CATEGORICAL)), "categorical"),
    ]
    signature = ModelSignature(Schema(inputs), Schema([TensorSpec(np.dtype(np.float32), (-1, 1), "logit")]))
    logged = mlflow.onnx.log_model(
        onnx.load(str(path)),
        name=MODEL,
        signature=signature,
        pip_requirements=["onnxruntime", "numpy"],
        save_as_external_data=False,
        registered_model_name=MODEL,
    )
    if verdict["promoted"]:
        mlflow.MlflowClient().set_registered_model_alias(MODEL, "champion", logged.registered_model_version)


def main() -> None:
    """From the raw package to a registered model."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--packages", type=Path, required=True, help="folder with the unpacked package")
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--whole", action="store_true", help="no pruning, no early stop: always the same compute")
    given = arguments.parse_args()
    out = given.out
    out.mkdir(parents=True, exist_ok=True)

    raw = read_raw(given.packages, out)
    check_raw(pd.read_parquet(raw))
    rows = prepare(raw, out)
    check_prepared(rows)
    arrays = encode(rows, out)

    import mlflow
    import mlflow.onnx
    import torch

    torch.set_num_threads(given.threads)
    splits = {split: {name: torch.from_numpy(one) for name, one in part.items()} for split, part in arrays.items()}
    mlflow.set_tracking_uri(f"sqlite:///{out / 'mlflow.db'}")
    if mlflow.get_experiment_by_name(EXPERIMENT) is None:
        mlflow.create_experiment(EXPERIMENT, artifact_location=(out / "artifacts").resolve().as_uri())
    mlflow.set_experiment(EXPERIMENT)
    with mlflow.start_run(run_name="flights"):
        mlflow.log_params({path: str(value)[:500] for path, value in SETTINGS.items()})
        best = search(splits, mlflow, given.whole)
        history: list[dict[str, float]] = []

        def after_epoch(epoch: int, values: dict[str, float], since: int) -> bool:
            history.append(values)
            mlflow.log_metrics(values, step=epoch)
            return given.whole or since < SETTINGS["train.patience"]

        net, _ = train(splits, settings_of(best), SETTINGS["train.epochs"], 1.0, after_epoch)
        score = export(net, splits, out / "model.onnx")
        verdict = judge(rows, arrays["test"]["target"], score)
        (out / "verdict.json").write_text(json.dumps(verdict, indent=1))
        (out / "figures").mkdir(exist_ok=True)
        draw_figures(arrays["test"]["target"], score, verdict, history, out / "figures")
        mlflow.log_metrics({"test_roc_auc": verdict["value"]})
        mlflow.log_artifacts(str(out / "figures"), "figures")
        mlflow.log_artifact(str(out / "verdict.json"))
        register(mlflow, out / "model.onnx", verdict)
    print(
        f"roc_auc {verdict['value']:.4f} [{verdict['low']:.4f}, {verdict['high']:.4f}], promoted {verdict['promoted']}"
    )


if __name__ == "__main__":
    main()
