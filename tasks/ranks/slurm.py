"""Slurm as a launcher: the job is a batch script in the job's folder, and torchrun runs under `srun`."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from models.errors import UsageError
from models.files import write_text
from models.project_spec.block import NumberText, SpecBlock
from tasks.ranks.launcher import SchedulerAwayError, Shape, State, name_of
from tasks.ranks.torchrun import torchrun

SCRIPT, LOG = "slurm.sh", "slurm.log"
Word = Annotated[str, StringConstraints(pattern=r"^[\w.,-]+$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\n]+$")]

_COMMAND_S = 120
_OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
_AWAY = ("Unable to contact", "timed out", "Connection refused", "Zero Bytes", "Transport endpoint", "communication")

_BODY = """
{setup}# SIGTERM comes a minute before the time limit: back into the queue, and on from the last checkpoint. It comes at
# `scancel` and at preemption too, but then the job runs no more.
trap '[ "$(squeue --noheader --job="$SLURM_JOB_ID" --format=%T)" = RUNNING ] && scontrol requeue "$SLURM_JOB_ID"' TERM
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((20000 + SLURM_JOB_ID % 10000))
srun --kill-on-bad-exit=1 --cpus-per-task={cpus} {command} &
wait $!
"""


class Slurm(SpecBlock):
    """A place of the engine `slurm`; its keys are options of sbatch."""

    engine: Literal["slurm"]
    partition: Word | None = None
    account: Word | None = None
    time: NumberText | None = Field(
        None, pattern=r"^(\d+-)?\d+(:\d\d){0,2}$", description="A time limit as of sbatch, such as 12:00:00."
    )
    cpus: int | None = Field(None, ge=1, description="CPUs of each node, shared by its ranks. Default: one a rank.")
    options: list[Annotated[str, StringConstraints(pattern=r"^--[^\n]+$")]] = Field(
        default_factory=list, description="Further options of sbatch, such as --gres=gpu:8."
    )
    setup: list[Line] = Field(default_factory=list, description="Shell lines before the training, such as module load.")

    programs: ClassVar[tuple[str, ...]] = ("sbatch", "squeue", "scancel")

    def submit(self, key: str, job: Path, shape: Shape) -> str:
        """Submit the job in a folder; see `Launcher`.

        Two jobs of one name never run at once (`--dependency=singleton`), and the second finds the first one's result.
        """
        script = job / SCRIPT
        write_text(script, self.script(key, job, shape))
        number = _run("sbatch", "--parsable", str(script))
        return f"submitted to Slurm as job {number.partition(';')[0]}, {name_of(key)}: its log is {job / LOG}"

    def state(self, key: str) -> State:
        """Return the state of the job of this name; see `Launcher`."""
        try:
            shown = _run("squeue", "--noheader", "--states=all", f"--name={name_of(key)}", "--format=%T")
        except SchedulerAwayError:
            return "unknown"
        states = set(shown.split()) - _OVER
        if not states:
            return "ended"
        if states & {"RUNNING", "SUSPENDED"}:
            return "running"
        return "ending" if states <= {"COMPLETING", "STAGE_OUT", "SIGNALING"} else "queued"

    def cancel(self, key: str) -> None:
        """End the job of this name, if there is one."""
        _run("scancel", f"--name={name_of(key)}")

    def script(self, key: str, job: Path, shape: Shape) -> str:
        """Return the batch script of a job."""
        least, most = shape.nodes
        cpus = self.cpus or shape.ranks * shape.threads
        output = str(job / LOG).replace("%", "%%")
        options = {
            "job-name": name_of(key),
            "output": f'"{output}"',
            "open-mode": "append",
            "nodes": f"{least}-{most}" if most > least else str(least),
            "ntasks-per-node": "1",
            "cpus-per-task": str(cpus),
            "requeue": "",
            "signal": "B:TERM@60",
            "dependency": "singleton",
            "partition": self.partition,
            "account": self.account,
            "time": self.time,
        }
        lines = [f"--{name}={value}".rstrip("=") for name, value in options.items() if value is not None]
        command = torchrun(job, shape, '"$SLURM_NNODES"', '"$HEAD:$PORT"', '"$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"')
        setup = "".join(f"{line}\n" for line in self.setup)
        head = "".join(f"#SBATCH {line}\n" for line in [*lines, *self.options])
        return f"#!/bin/bash\n{head}{_BODY.format(setup=setup, cpus=cpus, command=command)}"


def _run(*command: str) -> str:
    """Run a program of Slurm and return what it prints.

    Raises:
        SchedulerAwayError: slurmctld does not answer.
        UsageError: Slurm refuses the command.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except FileNotFoundError as error:
        raise UsageError(f"{command[0]}: no such program: run on a machine with Slurm's programs") from error
    except subprocess.TimeoutExpired as error:
        raise SchedulerAwayError(f"{command[0]}: no answer in {_COMMAND_S} s: waiting for Slurm") from error
    if done.returncode:
        refusal = " ".join(done.stderr.split())
        if any(word in refusal for word in _AWAY):
            raise SchedulerAwayError(f"Slurm is away ({refusal}): waiting")
        raise UsageError(f"{shlex.join(command)}: Slurm refuses it: {refusal}: correct places.yaml or `train`")
    return done.stdout.strip()
