"""torchrun's command for a job, and machines without a scheduler, where a person runs it on every node."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, PrivateAttr

from models.cores import WAITING
from models.launch import launched
from models.project_spec.block import SpecBlock
from tasks.ranks.launcher import Shape, State, name_of


def torchrun(
    job: Path, shape: Shape, nodes: str, endpoint: str, run_id: str, is_in_image: bool = False, options: str = ""
) -> str:
    """Return the shell command that trains the job of a folder, the same on every node.

    Args:
        job: The job's folder.
        shape: The job's shape.
        nodes: The number of nodes, or `min:max`; a shell word, as the others.
        endpoint: HOST:PORT of the node where the nodes meet.
        run_id: A text by which nodes of the same start know each other.
        is_in_image: Whether the nodes have Loopline's image; else they have this Python and Loopline at the same path.
        options: Further options of torchrun, as shell words.
    """
    python = "python" if is_in_image else shlex.quote(sys.executable)
    program = "-m models.training.node" if is_in_image else shlex.join(launched("models.training.node")[1:])
    waiting = " ".join(f"{name}={value}" for name, value in WAITING.items())
    # Ranks must not share the agent's TCP store, or one of two restarts fails at first. Python must not search the
    # working directory: a folder `models` of the user's is not ours.
    return (
        f"env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 PYTHONSAFEPATH=1 {waiting} "
        f"{python} -m torch.distributed.run --nnodes={nodes} --nproc-per-node={shape.ranks} "
        f"--max-restarts={shape.max_restarts} --rdzv-backend=c10d --rdzv-endpoint={endpoint} --rdzv-id={run_id} "
        f"{options}{' ' if options else ''}{program} {shlex.quote(str(job))}"
    )


class Torchrun(SpecBlock):
    """A place of the engine `torchrun`: machines that share a folder, without a scheduler."""

    engine: Literal["torchrun"]
    head: str = Field(
        pattern=r"^[\w.-]+:[1-9]\d{0,4}$", description="HOST:PORT of one of the machines, free for this training."
    )
    cpus: int | None = Field(None, ge=1, description="CPUs of each node, shared by its ranks. Default: one a rank.")
    gpus: ClassVar[None] = None
    programs: ClassVar[tuple[str, ...]] = ()
    starts_jobs: ClassVar[bool] = False
    _shown: set[str] = PrivateAttr(default_factory=set)

    def check(self) -> None:
        """Do nothing: there is no scheduler that could judge the place."""

    def check_nodes(self, nodes: tuple[int, int]) -> None:
        """Do nothing: machines may come and go."""

    def submit(self, key: str, job: Path, shape: Shape) -> str:
        """Return the command for a person to run; see `Launcher`."""
        self._shown.add(key)
        fewest, largest = shape.nodes
        nodes = f"{fewest}:{largest}" if largest > fewest else str(fewest)
        command = torchrun(job, shape, nodes, self.head, name_of(key))
        host = self.head.partition(":")[0]
        return f"on each of {nodes} machine(s) that share {job}, {host} among them, run:\n{command}"

    def state(self, key: str) -> State:
        """Return `running` once the command is shown: only the job's folder tells more."""
        return "running" if key in self._shown else "ended"

    def cancel(self, key: str) -> None:
        """Forget the command; who ran it ends it."""
        self._shown.discard(key)
