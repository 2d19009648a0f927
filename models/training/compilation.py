"""Compiles a net that the spec leaves open (`compile: auto`) if that pays: decided after its first steps, and kept.

The steps before the decision are ordinary ones, so that nothing is repeated. The job's folder holds the step from which
on the net is compiled, so a resumed job has the same bits as one that was never stopped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import time
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from models.distributed.parallel import ParallelizedNet
from models.distributed.recompute import compile_blocks
from models.distributed.world import World
from models.errors import TrainingError
from models.files import read_json, write_json
from models.training.costs.speeds import compile_facts
from models.training.job import CHOICES_FILE, TrainingJob

Mode = Literal["off", "on", "reduce-overhead"]
_MODES: tuple[Mode, ...] = ("off", "on", "reduce-overhead")

# Measured on one H100, decoders of 150 M and 1 B in bf16: 1.18 to 1.22 times as fast, after 45 s of compiling, or 6 s
# with a filled cache. On a CPU in fp32: 1.05 times for a decoder, 0.75 times for an MLP, after 20 to 30 s.
GAIN, COST_S = 1.18, 45.0
# Steps to come must save this many times what compiling costs: the times are estimates.
_MARGIN = 2.0
# The steps before a decision: two windows of the loop or more, as a device and its libraries warm up in the first. It
# does not depend on the moment of a kill, so neither does the first compiled step.
DECIDED_AT = 60
# A device that is done so soon after the last launch of a window, in shares of a step, waits for the launches.
_CAUGHT_UP = 0.1


class CompileChoice(NamedTuple):
    """Whether a net is compiled, from which step on, and why; `reduce-overhead` replays its launches as one graph."""

    mode: Mode
    why: str
    from_step: int = 0


class StepTiming(NamedTuple):
    """Times of a training's first steps, in seconds.

    Attributes:
        step_s: From one step to the next.
        wait_s: From the last launch of a window until the device was done.
        steps_left: Steps to come.
    """

    step_s: float
    wait_s: float
    steps_left: int


def should_compile(timing: StepTiming, gain: float, cost_s: float, can_replay: bool) -> CompileChoice:
    """Return whether the steps to come save more than compiling costs.

    Args:
        timing: Times of steps that are not compiled.
        gain: By what factor compiling makes a step faster.
        cost_s: Seconds that compiling takes.
        can_replay: Whether a step's launches may be replayed as one graph.
    """
    saved = timing.step_s * timing.steps_left * (1 - 1 / gain)
    facts = f"{timing.steps_left} steps of {timing.step_s:.3g} s to come: saves {saved:.3g} s, costs {cost_s:.3g} s"
    if saved < _MARGIN * cost_s:
        return CompileChoice("off", facts)
    if can_replay and timing.wait_s < _CAUGHT_UP * timing.step_s:
        return CompileChoice("reduce-overhead", f"{facts}; the GPU waits for launches")
    return CompileChoice("on", facts)


def choice_at_once(job: TrainingJob, device: torch.device) -> CompileChoice | None:
    """Return the choice if it does not depend on the time of a step; None if the first steps are to be timed."""
    if "tp" in job.train.parallel.split("+") and job.train.ranks > 1:
        return CompileChoice("off", "torch cannot compile tensor parallelism")
    if device.type != "cuda" and _known(job, device)[0] is None:
        return CompileChoice("off", "on a CPU, where no job of this workspace gained by it")
    missing = missing_compiler(device)
    return CompileChoice("off", missing) if missing else None


def missing_compiler(device: torch.device) -> str:
    """Return what torch.compile lacks here; empty if nothing."""
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    variable, names = ("CC", ("gcc", "clang", "cc")) if device.type == "cuda" else ("CXX", ("g++", "clang++"))
    named = os.environ.get(variable)
    if not any(map(shutil.which, (named,) if named else names)):
        return f"no {'C' if variable == 'CC' else 'C++'} compiler: {named or ' or '.join(names)} is not installed"
    return ""


def of_compiler(error: BaseException) -> bool:
    """Return whether compiled code failed because it was compiled: the compiler, or the replay of its launches."""
    return "CUDAGraph" in str(error) or type(error).__module__.startswith(
        ("torch._dynamo", "torch._inductor", "triton")
    )


class Compilation:
    """The compilation of one session's net.

    Args:
        job: The job, with its precision resolved; its folder holds the choice, if there is one.
        world: The ranks.
        plan: This rank's net.
        num_steps: Steps of the whole training.
    """

    def __init__(self, job: TrainingJob, world: World, plan: ParallelizedNet, num_steps: int) -> None:
        self._job, self._world, self._plan, self._num_steps = job, world, plan, num_steps
        self.is_auto = job.train.compile == "auto"
        self.choice = kept_choice(job.folder) if self.is_auto else None
        self.cost_s: float | None = None
        """Seconds that compiling took, as far as its first step shows."""
        self._is_applied = False
        self._windows: list[tuple[int, float, float]] = []

    @property
    def is_open(self) -> bool:
        """Whether the choice is still to be made, from the times of steps."""
        return self.is_auto and self.choice is None

    @property
    def first_step(self) -> float:
        """The first compiled step; infinite if there is none."""
        if not self.is_auto:
            return 0.0 if self._job.train.compile else float("inf")
        return float("inf") if self.choice is None or self.choice.mode == "off" else float(self.choice.from_step)

    def describe(self) -> dict[str, object] | bool:
        """Return whether and from which step on the net is compiled, which decides the bits."""
        if not self.is_auto or self.choice is None or self.choice.mode == "off":
            return self._job.train.compile is True
        return {"mode": self.choice.mode, "from_step": self.choice.from_step}

    def before(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Prepare a step: compile the net if it is due. Returns a context for the step.

        In the context of the first compiled step the watchdog excuses this rank.
        """
        if self.choice is not None and self.choice.mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        if self._is_applied or step < self.first_step or not self.is_auto:
            return contextlib.nullcontext()
        self._is_applied = True
        assert self.choice is not None
        replays = self.choice.mode == "reduce-overhead"
        self._plan.copies_outputs = replays
        compile_blocks(self._plan.net, replays)
        return self._first()

    def observe(self, step: int, num_steps: int, seconds: float, wait_s: float) -> None:
        """Record the times of a window of steps that ends before `step`; decide if they suffice.

        Every rank must call it while the choice is open.
        """
        self._windows.append((num_steps, seconds, wait_s))
        code = [-1.0]
        if self._world.is_first:
            choice = self._decided(step)
            if choice is not None:
                keep_choice(self._job.folder, choice)
                code = [float(_MODES.index(choice.mode))]
        [code_of_first] = self._world.from_first(code)
        if code_of_first >= 0:
            self.choice = kept_choice(self._job.folder) if self._world.is_first else None
            self.choice = self.choice or CompileChoice(_MODES[int(code_of_first)], "as rank 0 decided", step)

    def give_up(self, error: BaseException) -> None:
        """Keep the choice that this job is not compiled, because the compiler failed.

        Raises:
            TrainingError: There are other ranks, which cannot go back to the last checkpoint here.
        """
        lines = str(error).strip().splitlines() or [""]
        keep_choice(self._job.folder, CompileChoice("off", f"the compiler failed: {type(error).__name__}: {lines[0]}"))
        if self._world.size > 1:
            raise TrainingError(
                f"rank {self._world.rank}: train.compile: the compiler failed ({lines[0]}): run again, and the job "
                "goes on from its last checkpoint without compiling"
            ) from error

    def _decided(self, step: int) -> CompileChoice | None:
        gain, cost_s = _known(self._job, self._world.device)
        gain, cost_s = gain or GAIN, COST_S if cost_s is None else cost_s
        count, seconds, wait_s = min(self._windows, key=lambda window: window[1] / window[0])
        timing = StepTiming(seconds / count, wait_s, self._num_steps - step)
        choice = should_compile(timing, gain, cost_s, self._can_replay())
        # The first steps warm up and look too slow: if even these cannot pay, no others will.
        is_final = step >= DECIDED_AT or choice.mode == "off"
        return CompileChoice(choice.mode, choice.why, step) if is_final else None

    def _can_replay(self) -> bool:
        """Return whether each gradient is made once a step by one rank: a replayed graph writes to the same memory."""
        train = self._job.train
        is_alone = self._world.size == 1 and train.accumulate == 1 and train.recompute == "none"
        return is_alone and self._world.device.type == "cuda"

    @contextlib.contextmanager
    def _first(self):  # type: ignore[no-untyped-def]  # noqa: ANN202
        begin = time.perf_counter()
        with self._world.excused():
            yield
        self.cost_s = time.perf_counter() - begin


def _known(job: TrainingJob, device: torch.device) -> tuple[float | None, float | None]:
    """Return the gain and the cost of compiling in earlier jobs of this kind on this device."""
    if not job.speeds:
        return None, None
    return compile_facts(job.speeds, speed_device(job.processor, device), job.train.precision, job.model.net)


def speed_device(processor: str, device: torch.device) -> str:
    """Return the name under which the speeds of a device are kept."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor


def kept_choice(folder: Path) -> CompileChoice | None:
    """Return the choice in a job's folder; None if it is still to be made."""
    stored = read_json(folder / CHOICES_FILE).get("compile")
    return CompileChoice(stored["value"], stored["why"], stored["from_step"]) if stored else None


def keep_choice(folder: Path, choice: CompileChoice) -> None:
    """Write the choice into the job's folder, beside the others."""
    path = folder / CHOICES_FILE
    named = {"value": choice.mode, "why": choice.why, "from_step": choice.from_step}
    write_json(path, {**read_json(path), "compile": named})
