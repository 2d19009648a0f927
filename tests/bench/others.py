"""Other trainers on the same net and batches as the engine: Lightning and accelerate, where they are installed."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from models.data.preparation import Preparation
from models.distributed.world import World
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.training.job import TrainingJob
from models.training.loop import train
from models.training.session import open_session
from tests.bench.training import _table_batch, _tensors, table_task

REPEATS = 3


def compare() -> tuple[float, dict[str, float]]:
    """Samples for each CPU-second of the engine, and of each library that is there, in turns; medians."""
    runners: dict[str, Callable[[TrainingJob], None]] = {"engine": _engine}
    for name, runner in (("lightning", _lightning), ("accelerate", _accelerate)):
        if importlib.util.find_spec(name):
            runners[name] = runner
        else:
            Console().print(f"[dim]training MLP beside {name}: left out, it is not installed (pip install {name})")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    speeds: dict[str, list[float]] = {name: [] for name in runners}
    try:
        with tempfile.TemporaryDirectory() as place:
            task = table_task(Path(place) / "table")
            for turn in range(REPEATS + 1):
                for name, runner in runners.items():
                    start = time.process_time()
                    runner(task.job)
                    if turn:  # the first one imports
                        speeds[name].append(task.num_examples / (time.process_time() - start))
    finally:
        torch.set_num_threads(threads)
    found = {name: statistics.median(values) for name, values in speeds.items()}
    return found.pop("engine"), found


class _Batches(IterableDataset[Any]):
    """Whole batches by index: neither library is made to fetch row by row."""

    def __init__(self, job: TrainingJob) -> None:
        self.inputs, self.target = _tensors(job, "train")
        self.batch = job.train.batch

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(len(self.target))
        for start in range(0, len(order) - self.batch + 1, self.batch):
            at = order[start : start + self.batch]
            yield _table_batch(self.inputs, at), self.target.index_select(0, at)


def _engine(job: TrainingJob) -> None:
    train(open_session(job, World()), lambda _: True)


def _made(job: TrainingJob) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    net = build_net(job.model, Sizes.of(Preparation.load(job.prepared)), job.project)
    optimiser = torch.optim.AdamW(net.parameters(), lr=job.train.lr, fused=True)
    return net, optimiser, DataLoader(_Batches(job), batch_size=None)


def _accelerate(job: TrainingJob) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net, optimiser, loader = accelerator.prepare(*_made(job))
    for _ in range(job.train.epochs):
        for inputs, target in loader:
            loss = F.binary_cross_entropy_with_logits(net(**inputs).squeeze(1), target)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), job.train.clip_norm)
            optimiser.step()
            optimiser.zero_grad()


def _lightning(job: TrainingJob) -> None:
    import lightning

    net, optimiser, loader = _made(job)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            inputs, target = batch
            loss = F.binary_cross_entropy_with_logits(self.net(**inputs).squeeze(1), target)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimiser

    with warnings.catch_warnings(action="ignore"):
        trainer = lightning.Trainer(
            max_epochs=job.train.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=job.train.clip_norm,
        )  # fmt: skip
        trainer.fit(Module(), loader)
