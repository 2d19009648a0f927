"""Slurm as a launcher: the job is a batch script in the job's folder, and torchrun runs under `srun`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints, field_validator

from models.errors import UsageError
from models.files import write_text
from models.project_spec.block import SpecBlock, number_as_text
from tasks.host import processes
from tasks.ranks.launcher import SchedulerAwayError, Shape, State, TimeLimit, name_of, run_program
from tasks.ranks.torchrun import torchrun

SCRIPT, LOG = "slurm.sh", "slurm.log"
Word = Annotated[str, StringConstraints(pattern=r"^[\w.,-]+$"), BeforeValidator(number_as_text)]
Line = Annotated[str, StringConstraints(pattern=r"^[^\n]+$")]

_COMMAND_S = 120
# Source: sbatch's manual: --gres=gpu[:type][:count], --gpus-per-node=[type:]count.
_GPUS = re.compile(
    r"^--(?:gres[= ](?:.*,)?gpu(?!\w)(?::[A-Za-z]\w*)?:?|gpus-per-node[= ](?:[A-Za-z]\w*:)?)(\d+)?(?:,|\(|$)"
)
_OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip
_OURS = (
    "job-name", "output", "open-mode", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "requeue", "no-requeue",
    "signal", "dependency", "array", "clusters", "wait", "wrap", "test-only",
)  # fmt: skip
"""Options of sbatch by which Loopline could no longer find its job, or would be waiting for ever."""
# squeue takes SQUEUE_USERS as an option, and would not show the job. SLURM_MEM_PER_NODE and others describe the
# allocation that Loopline runs in; they would go on to the job, where srun rejects them. By PREFECT__FLOW_RUN_ID a job
# on a machine with a worker would count as the flow run's own process.
_FOREIGN = re.compile(r"(SQUEUE|SCANCEL|SLURM(?!_(CONF|CLUSTERS|JWT))|PREFECT_)_|SBATCH_(ARRAY_INX|CLUSTERS|WAIT)$")
_AWAY = (
    "Unable to contact", "timed out", "Connection refused", "Zero Bytes", "Transport endpoint", "communication",
    "standby mode", "temporarily un", "authentication", "Munge",
)  # fmt: skip

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
    time: TimeLimit | None = Field(None, description="A time limit as of sbatch, such as 12:00:00.")
    cpus: int | None = Field(None, ge=1, description="CPUs of each node, shared by its ranks. Default: one a rank.")
    options: list[Annotated[str, StringConstraints(pattern=r"^--[^\n]+$")]] = Field(
        default_factory=list, description="Further options of sbatch, such as --gres=gpu:8."
    )
    setup: list[Line] = Field(default_factory=list, description="Shell lines before the training, such as module load.")

    programs: ClassVar[tuple[str, ...]] = ("sbatch", "squeue", "scancel")
    starts_jobs: ClassVar[bool] = True

    @field_validator("options")
    @classmethod
    def _options_of_others(cls, options: list[str]) -> list[str]:
        for option in options:
            name = re.split("[= ]", option.removeprefix("--"), maxsplit=1)[0]
            if any(ours.startswith(name) for ours in _OURS):  # sbatch takes the beginning of a name too
                raise ValueError(f"another option than {option}: Loopline sets --{name} itself")
        return options

    @property
    def gpus(self) -> int | None:
        """The GPUs of each node that the options ask for; None if they name none."""
        matches = [_GPUS.search(option) for option in self.options]
        return next((int(match[1] or 1) for match in matches if match), None)

    def check(self) -> None:
        """Let Slurm judge the partition, the account and the options; nothing is submitted, and it may be away.

        Raises:
            UsageError: There is no such partition, account or option, they are not for this user, or this machine knows
                no cluster.
        """
        script = self.script("check", Path("/"), Shape((1, 1), 1, 1, 0))
        try:
            _run("sbatch", "--test-only", text=script)
        except SchedulerAwayError:
            return
        except UsageError as error:
            # These may hold today only: "node configuration is not available" if its nodes are drained.
            if not re.search("not available|busy|violates", str(error)):
                raise

    def check_nodes(self, nodes: tuple[int, int]) -> None:
        """Do nothing: Slurm takes a range of nodes."""

    def submit(self, key: str, job: Path, shape: Shape) -> str:
        """Submit the job in a folder; see `Launcher`.

        Two jobs of one name never run at once (`--dependency=singleton`), and the second finds the first one's result.
        """
        script = job / SCRIPT
        write_text(script, self.script(key, job, shape))
        # As arguments too: SBATCH_JOB_NAME and its like go before the script's lines.
        number = _run("sbatch", "--parsable", *self._options(key, job, shape), str(script))
        return f"submitted to Slurm as job {number.partition(';')[0]}, {name_of(key)}: its log is {job / LOG}"

    def state(self, key: str) -> State:
        """Return the state of the job of this name; see `Launcher`."""
        try:
            output = _run("squeue", "--noheader", "--states=all", f"--name={name_of(key)}", "--format=%T")
        except SchedulerAwayError:
            return "unknown"
        states = set(output.split()) - _OVER
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
        command = torchrun(job, shape, '"$SLURM_NNODES"', '"$HEAD:$PORT"', '"$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"')
        setup = "".join(f"{line}\n" for line in self.setup)
        # The log's name is an argument only: a line of the script cannot hold every name.
        lines = [line for line in self._options(key, job, shape) if not line.startswith("--output=")]
        head = "".join(f"#SBATCH {line}\n" for line in [*lines, *self.options])
        return f"#!/bin/bash\n{head}{_BODY.format(setup=setup, cpus=self._cpus(shape), command=command)}"

    def _options(self, key: str, job: Path, shape: Shape) -> list[str]:
        """Return the options of sbatch that Loopline sets."""
        fewest, largest = shape.nodes
        options = {
            "job-name": name_of(key),
            "output": str(job / LOG).replace("%", "%%"),
            "open-mode": "append",
            "nodes": f"{fewest}-{largest}" if largest > fewest else str(fewest),
            "ntasks-per-node": "1",
            "cpus-per-task": str(self._cpus(shape)),
            "requeue": "",
            "signal": "B:TERM@60",
            "dependency": "singleton",
            "partition": self.partition,
            "account": self.account,
            "time": self.time,
        }
        return [f"--{name}={value}".rstrip("=") for name, value in options.items() if value is not None]

    def _cpus(self, shape: Shape) -> int:
        return self.cpus or shape.ranks * shape.threads


def _run(*command: str, text: str = "") -> str:
    """Run a program of Slurm; see `run_program`."""
    # Unmarked: the job outlives the loop that submits it, and the reaper ends what a dead loop's mark is on.
    clean = {key: value for key, value in processes.unmarked(os.environ).items() if not _FOREIGN.match(key)}
    return run_program("Slurm", command, _AWAY, timeout_s=_COMMAND_S, text=text, environment=clean)
