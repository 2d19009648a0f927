"""`compile: auto`: decided by the times of the first steps, kept with the job, and no bit differs after a resume."""

from typing import Any

import pytest
import torch
from torch import nn

from models.distributed.world import World
from models.errors import TrainingError
from models.training import choices, compilation, loop
from models.training.choices import reasons
from models.training.compilation import (
    CompileChoice,
    StepTiming,
    choice_at_once,
    keep_choice,
    kept_choice,
    missing_compiler,
    should_compile,
)
from models.training.costs.speeds import MeasuredSpeed
from models.training.rank import run_job
from tests.tiny_jobs import MakeJob
from tests.wide import wide

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("timing", "mode"),
    [
        (StepTiming(0.12, 0.04, 100), "off"),  # saves 1.8 s
        (StepTiming(0.12, 0.04, 100_000), "on"),
        (StepTiming(0.01, 0.0001, 100_000), "reduce-overhead"),
        (StepTiming(0.01, 0.0001, 1000), "off"),
    ],
)
def test_only_a_long_job_is_compiled_and_one_that_waits_for_launches_replays_them(
    timing: StepTiming, mode: str
) -> None:
    choice = should_compile(timing, gain=1.18, cost_s=45.0, can_replay=True)
    assert choice.mode == mode
    assert f"{timing.steps_left} steps of {timing.step_s:.3g} s to come" in choice.why
    if mode == "reduce-overhead":
        assert should_compile(timing, 1.18, 45.0, can_replay=False).mode == "on"
    assert should_compile(timing, gain=0.9, cost_s=0.0, can_replay=True).mode == "off"


def test_a_cpu_is_not_timed_unless_its_own_jobs_gained(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_job(make_job(epochs=1))
    assert result.environment["chosen"]["compile"] == "off (on a CPU, where no job of this workspace gained by it)"
    assert result.environment["compiled"] is False
    plain = MeasuredSpeed(device="cpu", precision="fp32", net="mlp", mfu=0.2)
    speeds = (plain, plain.model_copy(update={"compiled": True, "mfu": 0.3}))
    job = make_job(folder="learnt", precision="fp32", job={"speeds": speeds})
    assert choice_at_once(job, CPU) is None
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    assert choice_at_once(job, CPU) == CompileChoice("off", "no C++ compiler: /nonexistent/g++ is not installed")


def test_a_gpu_without_a_compiler_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation.importlib.util, "find_spec", lambda _: None)
    assert missing_compiler(GPU) == "triton is not installed"
    monkeypatch.setattr(compilation.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(compilation.shutil, "which", lambda _: None)
    monkeypatch.delenv("CC", raising=False)
    assert missing_compiler(GPU) == "no C compiler: gcc or clang or cc is not installed"


def test_tensor_parallelism_is_not_compiled(make_job: MakeJob) -> None:
    shared = make_job(net="transformer", parallel="tp", ranks=2)
    assert choice_at_once(shared, GPU) == CompileChoice("off", "torch cannot compile tensor parallelism")


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Decide on a CPU as on a GPU, at step 12; a compiled net computes other bits."""
    compiled: list[nn.Module] = []

    def compile_blocks(net: nn.Module, _: bool) -> None:
        compiled.append(net)
        net.register_forward_hook(lambda _module, _inputs, output: output * 1.001)

    monkeypatch.setattr(choices, "choice_at_once", lambda job, _: choice_at_once(job, GPU))
    monkeypatch.setattr(compilation, "missing_compiler", lambda _: "")
    monkeypatch.setattr(compilation, "compile_blocks", compile_blocks)
    monkeypatch.setattr(compilation, "DECIDED_AT", 12)
    monkeypatch.setattr(loop, "WINDOW", 2)
    return compiled


@pytest.mark.parametrize("checkpoint", [wide(1), 4, wide(6), wide(9)])
def test_a_resumed_job_is_compiled_from_the_same_step_on(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, compiling: list[nn.Module], checkpoint: int
) -> None:
    """The choice is made at step 12 of 24, amid an epoch; the kill is before, at and after it."""
    monkeypatch.setattr(compilation, "COST_S", 0.0)
    whole = run_job(make_job(folder="whole", epochs=3, count=256))
    assert whole.environment["compiled"] == {"mode": "on", "from_step": 12}
    assert whole.environment["chosen"]["compile"].startswith("on (12 steps of ")
    assert len(compiling) == 1
    never = run_job(make_job(folder="never", epochs=3, count=256, compile=False))
    assert never.weights_sha256 != whole.weights_sha256

    class Killed(BaseException):
        pass

    taken: list[int] = []
    original = loop.TrainingSession.checkpoint

    def counting(session: Any) -> None:
        original(session)
        taken.append(session.progress.step)
        if len(taken) == checkpoint:
            session.saver.settle()
            raise Killed

    monkeypatch.setattr(loop.TrainingSession, "checkpoint", counting)
    job = make_job(folder="killed", epochs=3, count=256)
    with pytest.raises(Killed):
        run_job(job)
    if taken[-1] >= 12:  # another machine, on which it would not pay
        monkeypatch.setattr(compilation, "should_compile", lambda *_, **__: CompileChoice("off", ""))
    result = run_job(job)
    assert result.resumed_from == taken[checkpoint - 1 : checkpoint]
    assert result.weights_sha256 == whole.weights_sha256
    assert result.environment["compiled"] == whole.environment["compiled"]


def test_a_short_job_is_decided_by_its_first_window(make_job: MakeJob, compiling: list[nn.Module]) -> None:
    result = run_job(make_job(epochs=1))
    assert result.environment["chosen"]["compile"].startswith("off (")
    assert result.environment["compiled"] is False
    assert not compiling


def test_a_failing_compiler_costs_the_steps_since_the_last_checkpoint(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, compiling: list[nn.Module]
) -> None:
    del compiling
    expected = run_job(make_job(folder="plain", epochs=3, count=256, compile=False))
    failed = type("BackendCompilerFailed", (RuntimeError,), {"__module__": "torch._dynamo.exc"})

    def failing(net: nn.Module, _: bool) -> None:
        def fail(*_: object) -> None:
            raise failed("backend='inductor' raised:\nInvalidCxxCompiler")

        net.register_forward_pre_hook(fail)

    monkeypatch.setattr(compilation, "compile_blocks", failing)
    monkeypatch.setattr(compilation, "COST_S", 0.0)
    job = make_job(epochs=3, count=256)
    result = run_job(job)
    assert result.weights_sha256 == expected.weights_sha256
    assert result.resumed_from == [12]
    why = "off (the compiler failed: BackendCompilerFailed: backend='inductor' raised:)"
    assert reasons(job.folder)["compile"] == why


def test_ranks_are_told_to_run_again_if_the_compiler_of_one_fails(make_job: MakeJob) -> None:
    job = make_job()
    compiled = compilation.Compilation(job, World(rank=1, size=2), None, 10)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=r"rank 1: train.compile: the compiler failed \(no g\+\+\): run again, and"):
        compiled.give_up(RuntimeError("no g++"))
    kept = kept_choice(job.folder)
    assert kept is not None
    assert kept.mode == "off"


def test_a_choice_stands_beside_the_others(make_job: MakeJob) -> None:
    job = make_job()
    choices.settle_choices(job, World())
    keep_choice(job.folder, CompileChoice("on", "it pays", 7))
    assert kept_choice(job.folder) == CompileChoice("on", "it pays", 7)
    assert reasons(job.folder) == {"precision": "fp32 (on a CPU)", "compile": "on (it pays)"}
