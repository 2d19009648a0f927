"""Trains a job on a place of `places.yaml`: an engine runs it, this process waits for its result.

The job is `models/training/node.py` under torchrun. Everything that passes between it and this process is a file in the
job's folder, so this process may die: the next one finds the running job by its name.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol

from pydantic import StringConstraints

from models.errors import LooplineError, StoreError, TrainingError, UsageError
from models.files import read_json, write_text
from models.pipeline.keys import key_of
from models.project_spec.block import NumberText
from models.training.checkpoints.finished import read_finished
from models.training.job import ERROR_FILE, JOB_FILE, STOP_FILE, EpochReport, TrainingJob, TrainingResult
from models.training.node import read_progress
from tasks.ranks.rank_pool import StoppedWaitingError, rebuilt

State = Literal["queued", "running", "ending", "overdue", "ended", "unknown"]
"""ending: it is being cancelled or requeued. overdue: the place's time limit ends it for good. ended: there is no such
job any more. unknown: the engine is away."""
TimeLimit = Annotated[NumberText, StringConstraints(pattern=r"^(\d+-)?\d+(:\d\d){0,2}$")]
"""A time limit as of sbatch: minutes, minutes:seconds, hours:minutes:seconds, days-hours and so on."""

_ID_CHARACTERS = 12
_LOOK_S = 0.5
# The engine is asked after 1, 2, 4, ... looks into the folder, so every 16 s in the end.
_MOST_LOOKS = 32
# How often in a row a job that left no result must be over, so for 48 s if it ran long: NFS may show a file that late.
_ENDED = 3


class SchedulerAwayError(StoreError):
    """The engine cannot be reached; what it was asked may or may not have happened."""


class JobLostError(TrainingError):
    """A job ended without a result and without an error of its own, such as one that was cancelled by others."""


class JobOwner(NamedTuple):
    """Whose a job is: the id of the workspace, and a check that this process still runs the loop for which it acts.

    The check raises a LeaseLostError if not. A job outlives the process that submitted it, and the next holder of the
    loop's lease finds it by its name; from then on the former one may not submit, stop or cancel it.
    """

    workspace: str
    confirm: Callable[[], None]


class Shape(NamedTuple):
    """What a job needs: the least and the most nodes, ranks on each, threads of a rank, restarts after a rank died."""

    nodes: tuple[int, int]
    ranks: int
    threads: int
    max_restarts: int


class Launcher(Protocol):
    """An engine that runs `models.training.node` on the nodes of a cluster; the job's name is `loopline-<key>`."""

    def submit(self, key: str, job: Path, shape: Shape) -> str:
        """Submit the job in a folder; return a sentence for the user.

        Raises:
            UsageError: The engine refuses the job.
            SchedulerAwayError: The engine cannot be reached.
        """

    def state(self, key: str) -> State:
        """Return the state of the job of this name.

        Raises:
            UsageError: The engine refuses to say.
        """

    def cancel(self, key: str) -> None:
        """End the job of this name, if there is one."""


class Place(Launcher, Protocol):
    """An engine with the settings of an entry of `places.yaml`."""

    @property
    def engine(self) -> str:
        """Its name, or the reference of a row."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that this machine needs."""

    @property
    def starts_jobs(self) -> bool:
        """Whether it starts jobs by itself; else a person does."""

    @property
    def cpus(self) -> int | None:
        """The CPUs of each node; None: one a rank."""

    @property
    def gpus(self) -> int | None:
        """The GPUs of each node; None if the entry does not say."""

    def check(self) -> None:
        """Let the engine judge the entry; it may be away.

        Raises:
            UsageError: The engine refuses it.
        """

    def check_nodes(self, nodes: tuple[int, int]) -> None:
        """Check the least and the most nodes of a training.

        Raises:
            UsageError: The engine has no such jobs.
        """


def name_of(key: str) -> str:
    """Return the name of a job for the engine."""
    return f"loopline-{key}"


def key_of_folder(folder: Path, workspace: str) -> str:
    """Return the key of the job that trains in a folder.

    Args:
        folder: The job's folder. Another workspace may have one of the same path, on another volume or machine.
        workspace: The workspace's id, which tells them apart.
    """
    return f"{workspace[:_ID_CHARACTERS]}-{_earlier_key(folder)}"


def workspace_of(key: str) -> str:
    """Return the beginning of the id of the workspace to which a job's key belongs."""
    return key.partition("-")[0]


def _earlier_key(folder: Path) -> str:
    """Return the key as earlier versions of Loopline made it, without a workspace."""
    return key_of({"folder": str(folder)})[:16]


def key_in_use(launcher: Launcher, folder: Path, workspace: str) -> str:
    """Return the key of the job that trains in a folder: of one that runs since before an upgrade, its earlier key.

    Raises:
        UsageError: The engine refuses to say.
    """
    if (folder / JOB_FILE).exists():  # a job was submitted
        with contextlib.suppress(UsageError):  # of another workspace
            if launcher.state(earlier := _earlier_key(folder)) != "ended":
                return earlier
    return key_of_folder(folder, workspace)


def seconds_of(limit: str) -> int:
    """Return the seconds of a `TimeLimit`.

    Source: sbatch's manual, --time.
    """
    days, is_with_days, rest = limit.rpartition("-")
    numbers = [int(number) for number in rest.split(":")]
    if is_with_days:  # hours first
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = (0, *numbers, 0)[:3]
    return ((24 * int(days or 0) + hours) * 60 + minutes) * 60 + seconds


def run_program(
    engine: str,
    command: Sequence[str],
    away: Sequence[str],
    *,
    timeout_s: int,
    text: str = "",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program of an engine and return what it prints.

    Args:
        engine: The engine's name, for messages.
        command: The program and its arguments.
        away: What the program says when the engine does not answer: parts of its error, any of them.
        timeout_s: Seconds after which the engine counts as away.
        text: The program's input.
        environment: Its environment; default: this process's.

    Raises:
        SchedulerAwayError: The engine does not answer.
        UsageError: The engine refuses the command, or there is no such program that runs.
    """
    program = command[0]
    try:
        completed = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False,
            env=environment,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise UsageError(f"{program}: no such program: run on a machine with {engine}'s programs") from error
    except OSError as error:
        raise UsageError(f"{program}: cannot be run ({error.strerror}): correct the program on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise SchedulerAwayError(f"{program}: no answer in {timeout_s} s: waiting for {engine}") from error
    if completed.returncode:
        refusal = " ".join(completed.stderr.split())
        if any(words in refusal for words in away):
            raise SchedulerAwayError(f"{engine} is away ({refusal}): waiting")
        call = shlex.join(word for word in command if not word.startswith("-"))
        raise UsageError(
            f"{call}: {engine} refuses it: {refusal}: correct places.yaml or `train`, or ask for the right to it"
        )
    return completed.stdout.strip()


def train_at(
    launcher: Launcher,
    job: TrainingJob,
    owner: JobOwner,
    on_epoch: Callable[[EpochReport], bool] | None = None,
    say: Callable[[str], None] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> TrainingResult:
    """Train `job` to its end on an engine; the result of a finished job is read from its folder.

    A job that is queued or runs already is not submitted again, and one that ended early goes on from its last
    checkpoint. If this process is killed the job goes on; Ctrl-C cancels it, and so does whoever cancels the flow run.

    Args:
        launcher: The engine.
        job: The job; all nodes must share its folder, its data and its project under the same paths.
        owner: Whose it is. Who lost the loop neither submits nor stops nor cancels the job, which is the next one's.
        on_epoch: Called once per epoch; false stops the job after a later epoch.
        say: Receives sentences for the user.
        is_stopped: Whether to wait no longer; for callers whose threads get no Ctrl-C.
        is_cancelled: Whether the job is cancelled then, or at a signal such as SIGTERM; else it goes on.

    Raises:
        UsageError: The engine refuses the job.
        JobLostError: The job ended without a result.
        StoppedWaitingError: `is_stopped` was true.
        LeaseLostError: Another process runs the loop.
        LooplineError: The error that a rank raised, with its own traceback as a note.
    """
    key, say = key_in_use(launcher, job.folder, owner.workspace), say or _say_nothing
    try:
        return _follow(launcher, key, job, owner, _new_epochs(job.folder, owner, on_epoch, is_stopped), say)
    except StoppedWaitingError:
        if is_cancelled():
            _cancel(launcher, key, owner, say)
        raise
    except BaseException as error:
        if is_ended_by_person(error, is_cancelled):
            _cancel(launcher, key, owner, say)
        raise


def cancel_left(launcher: Launcher, folder: Path, workspace: str) -> bool:
    """Cancel the job of a folder for which nobody waits any more; return whether there was one.

    Raises:
        UsageError: The engine refuses.
        SchedulerAwayError: The engine cannot be reached.
    """
    key = key_in_use(launcher, folder, workspace)
    is_there = launcher.state(key) not in ("ending", "ended")
    if is_there:
        launcher.cancel(key)
    return is_there


def is_ended_by_person(error: BaseException, is_cancelled: Callable[[], bool]) -> bool:
    """Return whether an error means that a person ends the training: Ctrl-C, or a signal if `is_cancelled` is true."""
    return isinstance(error, KeyboardInterrupt) or (not isinstance(error, Exception) and is_cancelled())


def _follow(
    launcher: Launcher,
    key: str,
    job: TrainingJob,
    owner: JobOwner,
    epochs: Iterator[None],
    say: Callable[[str], None],
) -> TrainingResult:
    folder, is_ours, is_overdue, before, ended, looks = job.folder, False, False, "", 0, 1
    while True:
        # Before the look into the folder: a job that is over by then has written its last.
        state = _state(launcher, key, is_ours)
        is_ours = is_ours or state in ("queued", "running")
        is_overdue = is_overdue or (is_ours and state == "overdue")
        if state != before and (state == "unknown" or before):
            say(f"{name_of(key)} is {state}" if state != "unknown" else f"{name_of(key)}: the engine is away: waiting")
        before = state
        for _ in range(looks):
            result = read_finished(job)
            next(epochs)  # after the result: all epochs were written before it
            if result is not None:
                return result
            if is_ours:
                _raise_error(launcher, key, folder, owner, say)
            time.sleep(_LOOK_S)
        looks = min(2 * looks, _MOST_LOOKS)
        ended = ended + 1 if state == "ended" else 0
        if ended == 1 and not is_ours:
            is_ours, ended, before, looks = _submit(launcher, key, job, owner, say), 0, "", 1
        elif ended == _ENDED:
            raise _lost(folder, key, is_overdue)


def _lost(folder: Path, key: str, is_overdue: bool) -> JobLostError:
    if is_overdue:
        return JobLostError(
            f"{folder}: {name_of(key)} was ended by the time limit of its place (`time` in places.yaml): finished "
            "work is kept: run again to continue, with a longer `time` if an epoch takes longer"
        )
    return JobLostError(
        f"{folder}: {name_of(key)} ended without a result: see the log there (without a log, its nodes do not "
        "share the folder); finished work is kept: run again to continue"
    )


def _state(launcher: Launcher, key: str, is_ours: bool) -> State:
    try:
        return launcher.state(key)
    except UsageError:
        if is_ours:  # it was submitted and goes on, and its folder says how it ends
            return "unknown"
        raise


def _submit(launcher: Launcher, key: str, job: TrainingJob, owner: JobOwner, say: Callable[[str], None]) -> bool:
    """Submit a job of which there is none; return false if the engine is away: its state will tell."""
    owner.confirm()
    job.folder.mkdir(parents=True, exist_ok=True)
    for name in (ERROR_FILE, STOP_FILE):
        (job.folder / name).unlink(missing_ok=True)
    write_text(job.folder / JOB_FILE, job.model_dump_json())
    train = job.train
    nodes, ranks = job.processes
    try:
        say(launcher.submit(key, job.folder, Shape(nodes, ranks, job.threads, train.max_restarts)))
    except SchedulerAwayError as error:
        say(str(error))
        return False
    return True


def _new_epochs(
    folder: Path, owner: JobOwner, on_epoch: Callable[[EpochReport], bool] | None, is_stopped: Callable[[], bool]
) -> Iterator[None]:
    """Report the epochs that have been added, once each, whenever the next item is taken."""
    reported: set[tuple[str, int]] = set()
    for _ in itertools.count():
        if is_stopped():
            raise StoppedWaitingError
        for epoch in read_progress(folder) if on_epoch else ():
            if (epoch.stage, epoch.epoch) not in reported:
                reported.add((epoch.stage, epoch.epoch))
                if on_epoch and not on_epoch(epoch):
                    owner.confirm()
                    (folder / STOP_FILE).touch()
        yield


def _raise_error(launcher: Launcher, key: str, folder: Path, owner: JobOwner, say: Callable[[str], None]) -> None:
    path = folder / ERROR_FILE
    if path.exists():
        error = read_json(path)
        _cancel(launcher, key, owner, say)  # its restarts would end the same way
        raise rebuilt(error["type"], error["text"], error["traceback"])


def _cancel(launcher: Launcher, key: str, owner: JobOwner, say: Callable[[str], None]) -> None:
    """Cancel a job; an engine that cannot must not hide why the job is cancelled."""
    try:
        owner.confirm()
        launcher.cancel(key)
    except LooplineError as error:
        say(f"{name_of(key)} is not cancelled: {error}")


def _say_nothing(_: str) -> None:
    """Do nothing, for callers without `say`."""
