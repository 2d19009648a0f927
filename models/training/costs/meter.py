"""The meter: counts the cost of a training while it runs (time, FLOPs, memory, waiting, energy)."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import nn

from models.distributed.world import World
from models.training.batches.example_set import ExampleSet
from models.training.costs.counters import EnergyCounter, device_clock, peak_memory_mb, reset_peak
from models.training.costs.devices import device_peak
from models.training.costs.flops import count_flops
from models.training.job import TrainingJob

# BatchNorm cannot train on fewer examples; the count is scaled to one example.
_COUNTED = 2


class Stopwatch:
    """Adds up the seconds inside `with`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start


class Meter:
    """Counts the cost of one rank's training; every rank closes each epoch, rank 0 gets the sums.

    An epoch starts at the end of the previous one, so the work between them (checkpoints, waiting for the caller) is
    counted too.

    Args:
        world: The ranks whose costs are added.
        flops: FLOPs of one example, forward and backward; None if not counted.
        tokens: Tokens in one example; 0 for data that is not text.
        peak: Peak FLOP/s of one rank's device; None if unknown.
    """

    def __init__(
        self, world: World | None = None, flops: float | None = None, tokens: int = 0, peak: float | None = None
    ) -> None:
        self.world = world or World()
        self.flops = flops
        self.tokens = tokens
        self.peak = peak
        self.waiting = Stopwatch()
        """The time in which steps wait for their batches: use `with meter.waiting:`."""
        counts_energy = self.world.device.type == "cuda" or self.world.is_first
        self._energy = EnergyCounter(self.world.device) if counts_energy else None
        self._before: Mapping[str, float] = {}
        reset_peak(self.world.device)
        self._restart()

    def open_epoch(self, before: Mapping[str, float]) -> None:
        """Start the training part of an epoch.

        Args:
            before: The `so_far` of a checkpoint within this epoch; empty at the start of the epoch.
        """
        self._before = before
        self._trained_from = time.perf_counter()

    def so_far(self) -> dict[str, float]:
        """Return the seconds and joules of the current epoch on this rank, for a checkpoint within it."""
        now = time.perf_counter()
        spent = {
            "device": device_clock(self.world.device) - self._start,
            "training": (self._trained_to or now) - self._trained_from,
            "waiting": self.waiting.seconds,
            "joules": (self._joules() or 0.0) - self._joules_before,
        }
        return {name: value + self._before.get(name, 0.0) for name, value in spent.items()}

    def trained(self) -> None:
        """End the training part of the epoch; the evaluation follows."""
        self._trained_to = time.perf_counter()

    def close_epoch(self, num_examples: float) -> dict[str, float]:
        """Return the cost of the epoch on rank 0, an empty dict on the others. Every rank must call it.

        Args:
            num_examples: Training examples of this epoch, over all ranks.
        """
        spent, size = self.so_far(), self.world.size
        totals = torch.zeros(4 + size, dtype=torch.float64)
        sums = [spent["device"], spent["waiting"], spent["joules"], float(self._joules() is not None)]
        totals[:4] = torch.tensor(sums)
        totals[4 + self.world.rank] = peak_memory_mb(self.world.device)
        device_s, waiting, joules, counters, *memory = self.world.total(totals.to(self.world.device)).tolist()
        self._restart()
        if not self.world.is_first:
            return {}
        values = {
            **self._rates(num_examples, max(spent["training"], 1e-9)),
            "device_s": device_s,
            "data_wait_s": waiting / size,
            "peak_memory_mb": max(memory),
        }
        # On a CPU the first rank reads the counter of the whole machine.
        complete = counters == (size if self.world.device.type == "cuda" else 1)
        return {**values, "energy_j": joules} if complete else values

    def _rates(self, num_examples: float, seconds: float) -> dict[str, float]:
        rates = {"samples_per_s": num_examples / seconds}
        if self.tokens:
            rates["tokens_per_s"] = num_examples * self.tokens / seconds
        if self.flops is not None:
            rates["flops"] = num_examples * self.flops
            if self.peak:
                rates["mfu"] = rates["flops"] / seconds / (self.peak * self.world.size)
        return rates

    def _joules(self) -> float | None:
        return self._energy.joules() if self._energy else None

    def _restart(self) -> None:
        self._start = device_clock(self.world.device)
        self._trained_from = time.perf_counter()
        self._trained_to = 0.0
        self._before = {}
        self._joules_before = self._joules() or 0.0
        self.waiting.seconds = 0.0


def open_meter(job: TrainingJob, world: World, net: nn.Module, train: ExampleSet) -> Meter:
    """Return the meter of one rank; rank 0 counts the net's FLOPs once, before the net is split over ranks.

    It runs the net on two examples, so call it before the rank's generators are seeded.
    """
    some = torch.arange(min(_COUNTED, len(train)), device=world.device)
    peak = job.peak_flops_per_s or device_peak(world.device, job.train.precision)
    flops = count_flops(net, train.gather(some)) if world.is_first else None
    target = train.gather_target(some)
    return Meter(world, flops, target.shape[1] if target.ndim > 1 else 0, peak)
