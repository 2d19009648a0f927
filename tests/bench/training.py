"""The engine against training loops written by hand: samples for each CPU-second, on the same batches.

One thread each, in turns, several times over: the median of the ratios stands although the machine is busy.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.distributed.world import World
from models.inputs.categorical.record import CategoricalInput
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.project_spec.blocks import Image, Model, Train
from models.project_spec.window import Window
from models.training.job import TrainingJob
from models.training.loop import train
from models.training.optimisation.schedules import learning_rate
from models.training.session import open_session

REPEATS = 5
WINDOW = 64
FEW = 1000
"""Validation examples: few, so that what is compared is training."""


@dataclass(frozen=True)
class Task:
    """One job and the number of its training examples over all epochs."""

    job: TrainingJob
    num_examples: int


@dataclass(frozen=True)
class Throughput:
    """Samples for each CPU-second, medians, and the median of the ratios of neighbours."""

    ours: float
    bare: float
    ratio: float


def table_task(folder: Path, rows: int = 61_440) -> Task:
    """An MLP on a table with the columns of flights: 16 numbers, 5 categories."""
    cardinalities = (17, 4, 105, 20, 8)
    rng = np.random.default_rng(0)
    preparation = Preparation(
        kind="table",
        task="binary",
        target=TargetEncoding(name="late", classes=["false", "true"]),
        inputs=[
            *[NumericInput(name=f"n{i}", fill=0.0) for i in range(16)],
            *[
                CategoricalInput(name=f"c{i}", categories=[str(value) for value in range(count - 1)])
                for i, count in enumerate(cardinalities)
            ],
        ],
    )

    def tensors(count: int) -> dict[str, np.ndarray]:
        numeric = rng.normal(size=(count, 16)).astype(np.float32)
        columns = [rng.integers(0, cardinality, count) for cardinality in cardinalities]
        target = (numeric[:, 0] + rng.normal(size=count) > 1).astype(np.int64)
        return {"numeric": numeric, "categorical": np.stack(columns, axis=1).astype(np.int32), "target": target}

    model = Model(net="mlp", arguments={"hidden": 256, "layers": 2, "dropout": 0.2})
    train_block = Train(epochs=2, batch=1024, lr=0.002)
    return _task(folder, preparation, tensors(rows), tensors(FEW), model, train_block)


def image_task(folder: Path, rows: int = 1_536) -> Task:
    """A CNN on grey images of 28 x 28, as mnist's."""
    rng = np.random.default_rng(0)
    preparation = Preparation(
        kind="image",
        task="multiclass",
        target=TargetEncoding(name="digit", classes=[str(digit) for digit in range(10)]),
        inputs=[ImageInput(name="image", image=Image(height=28, width=28), mean=[0.13], std=[0.31])],
    )

    def tensors(count: int) -> dict[str, np.ndarray]:
        image = rng.integers(0, 256, (count, 1, 28, 28)).astype(np.uint8)
        return {"image": image, "target": rng.integers(0, 10, count)}

    return _task(folder, preparation, tensors(rows), tensors(100), Model(net="cnn"), Train(epochs=1, batch=128))


def sequence_task(folder: Path, rows: int = 512, epochs: int = 1, precision: str = "fp32", **model: int) -> Task:
    """A transformer on windows of 64 steps: 0.8 million parameters unless `model` says otherwise."""
    rng = np.random.default_rng(0)
    preparation = Preparation(
        kind="series",
        task="regression",
        target=TargetEncoding(name="load", shift=0.0, scale=1.0),
        inputs=[NumericInput(name=f"n{i}", fill=0.0) for i in range(8)],
        window=Window(length=WINDOW),
    )

    def tensors(count: int) -> dict[str, np.ndarray]:
        series = rng.normal(size=(count + WINDOW, 8)).astype(np.float32)
        end = np.arange(WINDOW - 1, count + WINDOW - 1, dtype=np.int64)
        target = series[end, 0]
        return {"series": series, "end": end, "target": target, "value": target.astype(np.float64)}

    chosen = Model(net="transformer", arguments={"width": 128, "layers": 4, "dropout": 0.0, **model})
    train_block = Train(epochs=epochs, batch=64, precision=precision)
    return _task(folder, preparation, tensors(rows), tensors(64), chosen, train_block, "rmse")


def compare(task: Task, repeats: int = REPEATS) -> Throughput:
    """Engine and hand-written loop in turns."""
    ours, bare = [], []
    for _ in range(repeats):
        ours.append(task.num_examples / _cpu_s(lambda: _engine(task.job)))
        bare.append(task.num_examples / _cpu_s(lambda: _by_hand(task.job)))
    ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
    return Throughput(statistics.median(ours), statistics.median(bare), statistics.median(ratios))


def run(repeats: int = REPEATS) -> dict[str, Throughput]:
    """All three nets."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as place:
            tasks = {
                "MLP": table_task(Path(place) / "table"),
                "CNN": image_task(Path(place) / "image"),
                "transformer": sequence_task(Path(place) / "sequence"),
            }
            for task in tasks.values():  # the first optimiser of a process imports torch._dynamo
                _by_hand(task.job.model_copy(update={"train": task.job.train.model_copy(update={"epochs": 1})}))
            return {name: compare(task, repeats) for name, task in tasks.items()}
    finally:
        torch.set_num_threads(threads)


def _engine(job: TrainingJob) -> None:
    train(open_session(job, World()), lambda _: True)


def _by_hand(job: TrainingJob) -> None:
    """What a person would write: index_select batches, fused AdamW, a cosine, clipping, the best weights kept."""
    preparation = Preparation.load(job.prepared)
    splits = {side: _tensors(job, side) for side in ("train", "validation")}
    inputs, target = splits["train"]
    torch.manual_seed(0)
    net = build_net(job.model, Sizes.of(preparation), job.project)
    matrices = [weight for weight in net.parameters() if weight.ndim >= 2]
    vectors = [weight for weight in net.parameters() if weight.ndim < 2]
    groups = [{"params": matrices, "weight_decay": job.train.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=job.train.lr, fused=True)
    batch, num_steps = job.train.batch, len(target) // job.train.batch
    make, loss_of = _table_batch, F.binary_cross_entropy_with_logits
    if preparation.kind == "image":
        make, loss_of = _image_batch, F.cross_entropy
    elif preparation.kind == "series":
        make, loss_of = _series_batch, F.mse_loss
    for epoch in range(job.train.epochs):
        net.train()
        order, losses = torch.randperm(len(target)), torch.zeros(())
        for index in range(num_steps):
            at = order[index * batch : (index + 1) * batch]
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(job.train, epoch * num_steps + index, job.train.epochs * num_steps)
            output = net(**make(inputs, at))
            loss = loss_of(output.squeeze(1), target.index_select(0, at))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), job.train.clip_norm)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            losses += loss.detach()
        losses.item()
        net.eval()
        with torch.no_grad():
            checked, wanted = splits["validation"]
            loss_of(net(**make(checked, torch.arange(len(wanted)))).squeeze(1), wanted).item()
        {name: weight.clone() for name, weight in net.state_dict().items()}


def _tensors(job: TrainingJob, side: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    tensors = {name: torch.from_numpy(array) for name, array in load_file(job.tensors[side]).items()}
    target = tensors.pop("target")
    return tensors, target if "image" in tensors else target.float()


def _table_batch(inputs: dict[str, torch.Tensor], at: torch.Tensor) -> dict[str, torch.Tensor]:
    categorical = inputs["categorical"].index_select(0, at).long()
    return {"numeric": inputs["numeric"].index_select(0, at), "categorical": categorical}


def _image_batch(inputs: dict[str, torch.Tensor], at: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"image": inputs["image"].index_select(0, at).float().div_(255).sub_(0.13).div_(0.31)}


def _series_batch(inputs: dict[str, torch.Tensor], at: torch.Tensor) -> dict[str, torch.Tensor]:
    steps = inputs["end"].index_select(0, at).unsqueeze(1) + torch.arange(1 - WINDOW, 1)
    return {"series": inputs["series"][steps]}


def _cpu_s(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _task(
    folder: Path,
    preparation: Preparation,
    training: dict[str, np.ndarray],
    validation: dict[str, np.ndarray],
    model: Model,
    settings: Train,
    metric: str = "accuracy",
) -> Task:
    folder.mkdir(parents=True)
    preparation.save(folder)
    paths = {side: folder / f"{side}.safetensors" for side in ("train", "validation")}
    save_file(training, paths["train"])
    save_file(validation, paths["validation"])
    job = TrainingJob(
        folder=folder / "job",
        prepared=folder,
        tensors=paths,
        project=folder,
        model=model,
        train=settings,
        metric=metric,
        direction="maximize" if metric == "accuracy" else "minimize",
        checkpoints=False,
    )
    return Task(job, len(training["target"]) * settings.epochs)
