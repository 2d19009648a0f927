"""What the engine does on a GPU, in tables: `make bench-gpu`, or `python -m tests.bench.gpu nets speed`.

It needs a GPU. `--toy` runs the same code at tiny sizes on a CPU: that shows only that it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from safetensors.numpy import save_file

from models.data.preparation import Preparation, TargetEncoding, TextInput
from models.distributed.world import World
from models.errors import LooplineError
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.project_spec.blocks import Model, Train
from models.training.job import EpochReport, TrainingJob, TrainingResult
from models.training.rank import device_name, device_of, run_job
from tests.tiny_jobs import MakeJob, job_maker

NETS = (
    ("table", "mlp", "binary"),
    ("table", "transformer", "multiclass"),
    ("image", "cnn", "binary"),
    ("image", "transformer", "binary"),
    ("series", "gru", "regression"),
    ("series", "lstm", "regression"),
    ("series", "transformer", "regression"),
    ("text", "decoder", "language"),
    ("text", "gru", "language"),
)
LARGE, TOY = {"width": 1024, "layers": 12, "heads": 16}, {"width": 32, "layers": 2, "heads": 2}
_ALPHABET = "".join(map(chr, range(32, 127)))
_STEPS, _EPOCHS = 40, 4
_STOPPED_AT = 3

Rows = Iterable[tuple[str, ...]]


class _StoppedError(BaseException):
    """Stands for a kill: nothing catches it."""


def main() -> int:
    """Print the tables; return 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(_PARTS)}; default: all")
    parser.add_argument("--toy", action="store_true", help="tiny sizes, on a CPU too; its times say nothing")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() and not arguments.toy:
        print("bench-gpu needs a GPU, and torch sees none here: run it on a machine with one, or try --toy")
        return 2
    console = Console()
    console.print(f"{time.strftime('%Y-%m-%d')}, {_device()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    with tempfile.TemporaryDirectory() as place:
        for name in arguments.parts or _PARTS:
            heads, rows = _PARTS[name]
            table = Table(*heads, title=name)
            for row in rows(Path(place) / name, arguments.toy):
                table.add_row(*row)
            console.print(table)
    return 0


def _device() -> str:
    return device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def _run(job: TrainingJob, report: Callable[[EpochReport], bool] | None = None) -> TrainingResult:
    return run_job(job, report, World(device=device_of(job)))


def _maker(folder: Path) -> MakeJob:
    folder.mkdir(parents=True)
    return job_maker(folder)


def _precisions() -> tuple[str, ...]:
    return ("fp32", "bf16", "fp16") if torch.cuda.is_available() else ("fp32",)


def nets(folder: Path, is_toy: bool) -> Rows:
    """Yield for each net and precision the metric, and the training loss of the first and the last epoch."""
    make = _maker(folder)
    for kind, net, task in NETS[: 2 if is_toy else None]:
        for precision in _precisions():
            name = f"{kind}-{net}-{precision}"
            try:
                result = _run(make(kind, task, net, count=512, epochs=_EPOCHS, precision=precision, folder=name))
            except LooplineError as error:
                yield f"{kind}/{net}", precision, "-", str(error).splitlines()[0]
                continue
            losses = f"{result.epochs[0]['train_loss']:.4f} -> {result.epochs[-1]['train_loss']:.4f}"
            yield f"{kind}/{net}", precision, f"{result.value:.4f}", losses


def bits(folder: Path, is_toy: bool) -> Rows:
    """Yield for each net whether a second run, and a run stopped in the middle and resumed, give the same bits."""
    make = _maker(folder)
    for kind, net, task in NETS[: 2 if is_toy else None]:
        for precision in _precisions():
            name = f"{kind}-{net}-{precision}"
            jobs = [
                make(kind, task, net, count=512, epochs=_EPOCHS, precision=precision, folder=f"{name}-{one}")
                for one in ("first", "second", "stopped")
            ]
            first, second = (_run(job).weights_sha256 for job in jobs[:2])
            with contextlib.suppress(_StoppedError):
                _run(jobs[2], _stop)
            resumed = _run(jobs[2])
            same = "yes" if resumed.resumed_from and resumed.weights_sha256 == first else "no"
            yield f"{kind}/{net}", precision, "yes" if first == second else "no", same


def _stop(epoch: EpochReport) -> bool:
    if epoch.epoch == _STOPPED_AT:
        raise _StoppedError
    return True


def speed(folder: Path, is_toy: bool) -> Rows:
    """Yield samples a second of the engine's fastest epoch and of a bare loop, for a decoder of 150 M parameters."""
    folder.mkdir(parents=True)
    arguments, batch, length = (TOY, 8, 16) if is_toy else (LARGE, 128, 256)
    ways = [("fp32-exact", False), ("fp32", False), ("bf16", False), ("bf16", True)]
    for precision, compiled in [("fp32", False)] if is_toy else ways:
        name = f"{precision}{'-compiled' if compiled else ''}"
        settings = {"lr": 3e-4, "epochs": _EPOCHS, "batch": batch, "precision": precision, "compile": compiled}
        job = _decoder_job(folder / name, length, batch * _STEPS, arguments, Train(**settings))
        result = _run(job)
        ours, bare = max(epoch["samples_per_s"] for epoch in result.epochs), _bare(job)
        mfu = result.epochs[-1].get("mfu")
        facts = f"{result.num_parameters / 1e6:.1f} M", f"{ours:.1f}", f"{bare:.1f}", f"{ours / bare:.3f}"
        yield name, *facts, "-" if mfu is None else f"{mfu:.3f}"


def _decoder_job(folder: Path, length: int, examples: int, arguments: dict[str, int], train: Train) -> TrainingJob:
    folder.mkdir()
    text = TextInput(column="text", length=length, stride=length, alphabet=_ALPHABET)
    target = TargetEncoding(name="next")
    Preparation(kind="text", task="language", target=target, characters=text).save(folder)
    random = np.random.default_rng(0)
    tensors = {side: folder / f"{side}.safetensors" for side in ("train", "validation")}
    for path, count in zip(tensors.values(), (examples, 64), strict=True):
        steps = random.integers(1, 4, length * count + 1)
        tokens = (np.cumsum(steps) % len(_ALPHABET) + 1).astype(np.uint8)
        save_file({"tokens": tokens, "start": np.arange(0, length * count, length, dtype=np.int64)}, path)
    return TrainingJob(
        folder=folder / "job",
        prepared=folder,
        tensors=tensors,
        project=folder,
        model=Model(net="decoder", arguments=arguments),
        train=train,
        metric="bits_per_char",
        direction="minimize",
        checkpoints=False,
    )


def _bare(job: TrainingJob) -> float:
    """Return samples a second of a plain loop with the same net, batch and optimiser, its batches on the device."""
    device, train = device_of(job), job.train
    preparation = Preparation.load(job.prepared)
    net = build_net(job.model, Sizes.of(preparation), job.project).to(device)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=device.type == "cuda")
    called = torch.compile(net) if train.compile is True else net
    characters = preparation.characters
    assert characters is not None
    shape = 16 * train.batch, characters.length + 1
    data = torch.randint(1, len(characters.alphabet), shape, device=device)

    def step(index: int) -> None:
        rows = data[index % 16 * train.batch :][: train.batch]
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=train.precision == "bf16"):
            output = called(tokens=rows[:, :-1])
        F.cross_entropy(output.flatten(0, 1).float(), rows[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    seconds = 0.0
    for count in (8, _STEPS):  # the first steps warm up
        begun = time.perf_counter()
        for index in range(count):
            step(index)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begun
    return _STEPS * train.batch / seconds


_PARTS: dict[str, tuple[tuple[str, ...], Callable[[Path, bool], Rows]]] = {
    "nets": (("net", "precision", "metric", "training loss"), nets),
    "bits": (("net", "precision", "again", "stopped and resumed"), bits),
    "speed": (("decoder", "parameters", "engine", "bare loop", "ratio", "mfu"), speed),
}

if __name__ == "__main__":
    sys.exit(main())
