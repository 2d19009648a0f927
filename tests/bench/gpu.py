"""What the engine does on a GPU, in tables: `make bench-gpu`, or `python -m tests.bench.gpu nets speed`.

It needs a GPU. `--toy` runs the same code at tiny sizes on a CPU: that shows only that it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from safetensors.numpy import save_file

from models.data.preparation import Preparation, TextInput
from models.data.target_encoding import TargetEncoding
from models.distributed.precision import set_products
from models.distributed.world import World
from models.errors import LooplineError
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.planner.candidates import Candidate
from models.planner.duration import duration_of
from models.planner.machines import LAPTOP
from models.planner.memory import TrainingShape, memory_of
from models.planner.profile import Profiler
from models.project_spec.blocks import Model, Precision, Train
from models.training.costs.devices import device_peak, measured_peak
from models.training.job import EpochReport, TrainingJob, TrainingResult
from models.training.loop import make_step
from models.training.rank import device_name, device_of, run_job
from models.training.session import open_session
from tasks.ranks.rank_pool import RankPool
from tests.tiny_jobs import MakeJob, job_maker

NETS = (
    ("table", "mlp", "binary"),
    ("table", "tabm", "binary"),
    ("table", "transformer", "multiclass"),
    ("image", "cnn", "binary"),
    ("image", "transformer", "binary"),
    ("series", "gru", "regression"),
    ("series", "lstm", "regression"),
    ("series", "transformer", "regression"),
    ("text", "decoder", "language"),
    ("text", "gru", "language"),
)
OPTIONS: dict[str, dict[str, Any]] = {
    "fp16 with its scaled loss": {"precision": "fp16"},
    "muon": {"optimiser": "muon"},
    "sgd with Nesterov's momentum": {"optimiser": "sgd", "nesterov": True},
    "moving average": {"ema": 0.9},
    "accumulation": {"accumulate": 2},
    "recomputation": {"recompute": "full"},
    "batch: auto": {"batch": "auto"},
    "streamed from disk": {"memory_mb": 1},
}


class Case(NamedTuple):
    """A decoder, its batch and the length of its windows."""

    arguments: dict[str, int]
    batch: int
    length: int


TOY = Case({"width": 32, "layers": 2, "heads": 2}, 8, 16)
MIDDLE = Case({"width": 1024, "layers": 12, "heads": 16}, 128, 256)  # 150 M
LARGE = Case({"width": 2048, "layers": 20, "heads": 16}, 16, 1024)  # 1 B
TOO_LARGE = Case({"width": 4096, "layers": 32, "heads": 32}, 8, 64)  # 6.4 B: 103 GB with gradients and AdamW's state
_ALPHABET = "".join(map(chr, range(32, 127)))
_STEPS, _WARM_STEPS, _EPOCHS = 40, 8, 4
_STOPPED_AT, _KILLED_AT = 3, 2

Rows = Iterable[tuple[str, ...]]


class _StoppedError(BaseException):
    """Stands for a kill: nothing catches it."""


def main() -> int:
    """Print the tables; return 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; default: all")
    parser.add_argument("--toy", action="store_true", help="tiny sizes, on a CPU too; its times say nothing")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() and not arguments.toy:
        print("bench-gpu needs a GPU, and torch sees none here: run it on a machine with one, or try --toy")
        return 2
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as the rank pool does, for the same bits
    console = Console()
    console.print(f"{time.strftime('%Y-%m-%d')}, {_device()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    with tempfile.TemporaryDirectory() as place:
        for name in arguments.parts or PARTS:
            heads, rows = PARTS[name]
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


def options(folder: Path, is_toy: bool) -> Rows:
    """Yield for each option of the trainer the metric and the training loss of the first and the last epoch."""
    make = _maker(folder)
    for index, (name, settings) in enumerate(OPTIONS.items()):
        if is_toy and settings.get("precision") == "fp16":
            continue
        job = make("text", "language", "decoder", count=512, epochs=_EPOCHS, folder=f"job{index}", **settings)
        result = _run(job)
        losses = f"{result.epochs[0]['train_loss']:.4f} -> {result.epochs[-1]['train_loss']:.4f}"
        yield name, f"{result.value:.4f}", losses


def speed(folder: Path, is_toy: bool) -> Rows:
    """Yield samples a second of the engine's fastest epoch and of a bare loop, for decoders of 150 M and 1 B."""
    folder.mkdir(parents=True)
    ways = [(MIDDLE, "fp32-exact", False), (MIDDLE, "fp32", False), (MIDDLE, "bf16", False), (MIDDLE, "bf16", True)]
    ways += [(LARGE, "bf16", False), (LARGE, "bf16", True)]
    for case, precision, compiled in [(TOY, "fp32", False)] if is_toy else ways:
        width = case.arguments["width"]
        job = decoder_job(folder / f"{width}-{precision}-{compiled}", case, precision, compiled)
        result = _run(job)
        ours, bare = max(epoch["samples_per_s"] for epoch in result.epochs), _bare(job)
        mfu = max(epoch.get("mfu", 0.0) for epoch in result.epochs)
        joules = sum(epoch.get("energy_j", 0.0) for epoch in result.epochs)
        facts = f"{result.num_parameters / 1e6:.1f} M", f"{ours:.1f}", f"{bare:.1f}", f"{ours / bare:.3f}"
        name = f"{precision}{' compiled' if compiled else ''}"
        yield name, *facts, f"{mfu:.3f}" if mfu else "-", f"{joules / 1e3:.1f}" if joules else "-"
        _forget()


class PlanCheck(NamedTuple):
    """What the planner foretold of a training, and what was measured: bytes of one rank, and seconds of a step."""

    foretold_bytes: float
    held_bytes: float
    foretold_s: float
    measured_s: float


def plan_check(folder: Path, case: Case, precision: Precision) -> PlanCheck:
    """Train a decoder, and foretell it with the efficiency that it reached with half the batch."""
    folder.mkdir(parents=True)
    half = decoder_job(folder / "half", case._replace(batch=case.batch // 2), precision, compiled=False)
    whole = decoder_job(folder / "whole", case, precision, compiled=False)
    device = device_of(whole)
    set_products(precision, device)
    peak = device_peak(device, precision) or measured_peak(whole.threads, precision)
    assert peak, f"no peak is known for {_device()}: the time cannot be foretold"
    reached = max(epoch["mfu"] for epoch in _run(half.model_copy(update={"peak_flops_per_s": peak})).epochs[1:])
    _forget()
    result = _run(whole.model_copy(update={"peak_flops_per_s": peak}))
    sizes = Sizes.of(Preparation.load(whole.prepared))
    profiler = Profiler(whole.model, sizes, whole.project, precision, flash=device.type == "cuda")
    shape, candidate = TrainingShape.of(whole.train, device.type == "cpu"), Candidate.of(whole.train)
    flops = profiler.flops()
    assert flops is not None
    machine = LAPTOP.model_copy(update={"efficiency": reached})
    return PlanCheck(
        memory_of(profiler, candidate, shape, exact=True).total,
        result.costs.peak_memory_mb * 1e6,
        duration_of(profiler, candidate, shape, machine, flops, peak).step_s,
        case.batch / max(epoch["samples_per_s"] for epoch in result.epochs[1:]),
    )


def plan(folder: Path, is_toy: bool) -> Rows:
    """Yield what the planner foretells of decoders of 150 M and 1 B, and what their trainings held and took."""
    for case in (TOY,) if is_toy else (MIDDLE, LARGE):
        check = plan_check(folder / str(case.arguments["width"]), case, "fp32" if is_toy else "bf16")
        sizes = f"{check.foretold_bytes / 1e9:.2f}", f"{check.held_bytes / 1e9:.2f}"
        yield str(case.arguments), *sizes, f"{check.foretold_s:.4f}", f"{check.measured_s:.4f}"
        _forget()


def starts(folder: Path, is_toy: bool) -> Rows:
    """Yield the seconds until the first epoch's report, and until a net that cannot fit is refused."""
    folder.mkdir(parents=True)
    for name, case in ({"toy": TOY} if is_toy else {"1 B": LARGE, "too large": TOO_LARGE}).items():
        seconds, outcome = start_of(decoder_job(folder / name, case, "auto", compiled=False, steps=1))
        yield name, f"{seconds:.2f}", outcome
        _forget()


def start_of(job: TrainingJob) -> tuple[float, str]:
    """Run an epoch; return the seconds until it was reported, or the job was refused, and which of both."""
    begun, reported = time.perf_counter(), []

    def report(_: EpochReport) -> bool:
        reported.append(time.perf_counter() - begun)
        return False

    try:
        _run(job, report)
    except LooplineError as error:
        return time.perf_counter() - begun, str(error).splitlines()[0]
    return reported[0], "trained"


def restarts(folder: Path, is_toy: bool) -> Rows:
    """Yield of a job in a new rank pool, of the same again, and with its rank killed: seconds, restarts, same bits."""
    make, first = _maker(folder), ""
    with RankPool() as pool:
        for name in ("first", "again", "killed"):
            job = make("text", "language", "decoder", count=512, epochs=_EPOCHS, folder=name)
            seconds, result = _in_pool(pool, job, _KILLED_AT if name == "killed" else None)
            same = ("yes" if result.weights_sha256 == first else "no") if first else "-"
            first = first or result.weights_sha256
            yield name, f"{seconds[0]:.2f}", f"{seconds[-1]:.2f}", str(result.restarts), same


def _in_pool(pool: RankPool, job: TrainingJob, killed_at: int | None) -> tuple[list[float], TrainingResult]:
    """Return the seconds until each epoch's report and until the result, and the result; kill the rank in an epoch."""
    begun, seconds = time.perf_counter(), list[float]()

    def report(epoch: EpochReport) -> bool:
        seconds.append(time.perf_counter() - begun)
        if epoch.epoch == killed_at:
            assert pool._fork_server is not None
            for rank in psutil.Process(pool._fork_server.pid).children():
                rank.kill()
        return True

    result = pool.run(job, report)
    return [*seconds, time.perf_counter() - begun], result


def determinism(folder: Path, is_toy: bool) -> Rows:
    """Yield with and without deterministic algorithms the ms of a step, and whether two runs give the same bits."""
    folder.mkdir(parents=True)
    job = decoder_job(folder / "job", TOY if is_toy else MIDDLE, "fp32" if is_toy else "bf16", compiled=False)
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # as the engine does
        for is_on in (True, False):
            torch.use_deterministic_algorithms(is_on, warn_only=True)
            (first_ms, first), (second_ms, second) = _stepped(job), _stepped(job)
            same = all(map(torch.equal, first, second))
            yield "on" if is_on else "off", f"{min(first_ms, second_ms):.1f}", "yes" if same else "no"
    finally:
        torch.use_deterministic_algorithms(mode=False)
        torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


def _stepped(job: TrainingJob) -> tuple[float, list[torch.Tensor]]:
    """Return the mean ms of a step of the engine, after some that warm up, and the weights in the end."""
    device = device_of(job)
    set_products(job.train.precision, device)
    session = open_session(job, World(device=device))
    session.plan.learn(on=True)
    step, order, begun = make_step(session), session.train.order(0, session.order), 0.0
    for index in range(_STEPS):
        if index == _WARM_STEPS:
            _wait(device)
            begun = time.perf_counter()
        step(order, 0, index)
    _wait(device)
    ms = (time.perf_counter() - begun) / (_STEPS - _WARM_STEPS) * 1e3
    weights = [parameter.detach().cpu() for parameter in session.net.parameters()]
    del session, step
    _forget()
    return ms, weights


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def busy_share(spans: Iterable[tuple[float, float]]) -> float:
    """Return the share of the time from the first begin to the last end in which a span, of several at once, runs."""
    ordered = sorted(spans)
    busy, reached = 0.0, ordered[0][0]
    for begin, end in ordered:
        busy += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return busy / (reached - ordered[0][0])


def _forget() -> None:
    """Give the memory of finished trainings back, and their compiled code."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.compiler.reset()  # type: ignore[no-untyped-call]


def decoder_job(folder: Path, case: Case, precision: Precision, compiled: bool, steps: int = _STEPS) -> TrainingJob:
    settings = {"lr": 3e-4, "epochs": _EPOCHS, "batch": case.batch, "precision": precision, "compile": compiled}
    return _written_job(folder, case.length, case.batch * steps, case.arguments, Train(**settings))


def _written_job(folder: Path, length: int, examples: int, arguments: dict[str, int], train: Train) -> TrainingJob:
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
    for count in (_WARM_STEPS, _STEPS):
        begun = time.perf_counter()
        for index in range(count):
            step(index)
        _wait(device)
        seconds = time.perf_counter() - begun
    return _STEPS * train.batch / seconds


PARTS: dict[str, tuple[tuple[str, ...], Callable[[Path, bool], Rows]]] = {
    "nets": (("net", "precision", "metric", "training loss"), nets),
    "bits": (("net", "precision", "again", "stopped and resumed"), bits),
    "options": (("option", "metric", "training loss"), options),
    "speed": (("decoder", "parameters", "engine", "bare loop", "ratio", "mfu", "kJ"), speed),
    "plan": (("decoder", "GB foretold", "GB held", "s a step foretold", "s a step measured"), plan),
    "starts": (("decoder", "seconds", "outcome"), starts),
    "restarts": (("job", "s to the first epoch", "s in all", "restarts", "bits of the first"), restarts),
    "determinism": (("deterministic", "ms a step", "same bits again"), determinism),
}

if __name__ == "__main__":
    sys.exit(main())
