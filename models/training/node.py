"""A rank on a cluster: `torchrun ... -m models.training.node JOB_FOLDER`, the same command on every node.

The folder is shared by all nodes under the same path. The program reads `job.json` there and writes only below it:
`progress.jsonl` (a line for each epoch), the checkpoints, and `result.json`, or `error.json` if no restart can help. A
file `stop` ends the training after the current epoch.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from models.errors import LooplineError
from models.files import write_json
from models.training.job import ERROR_FILE, JOB_FILE, PROGRESS_FILE, STOP_FILE, EpochReport, TrainingJob


def main(folder: Path) -> int:
    """Train the job of a folder on this rank of torchrun's; return the exit code.

    After an exit code other than 0 torchrun starts all ranks again, and they go on from the last checkpoint. If there
    is an `error.json`, they end again at once, before torch is imported.
    """
    if (folder / ERROR_FILE).exists():
        return 1
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    from models.training.known_errors import explaining
    from models.training.rank import is_of_the_network, join_world, leave_world, run_job

    job = TrainingJob.model_validate_json((folder / JOB_FILE).read_text(), strict=False)
    try:
        with explaining(f"rank {os.environ.get('RANK', '0')}"):  # NCCL connects the ranks at their first collective
            world = join_world(job, _hung)
            run_job(job, _reporter(folder), world, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
            leave_world(world)
    except Exception as error:  # noqa: BLE001  every error is written for the submitter
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        if isinstance(error, LooplineError) or not is_of_the_network(error):
            write_json(folder / ERROR_FILE, {"type": type(error).__name__, "text": str(error), "traceback": trace})
        sys.stderr.flush()
        os._exit(1)  # a process group whose peers are gone can hang at the interpreter's exit
    return 0


def append_progress(folder: Path, epoch: EpochReport) -> None:
    """Append an epoch to the folder's progress; the line break before it ends a line that a killed rank left torn."""
    with (folder / PROGRESS_FILE).open("a") as file:
        file.write(f"\n{json.dumps(epoch.model_dump())}\n")


def read_progress(folder: Path) -> list[EpochReport]:
    """Return the epochs of a job so far; after a restart some come twice."""
    path, epochs = folder / PROGRESS_FILE, []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            epochs.append(EpochReport.model_validate(json.loads(line)))
        except ValueError:  # empty, or torn
            continue
    return epochs


def _reporter(folder: Path) -> Callable[[EpochReport], bool]:
    def report(epoch: EpochReport) -> bool:
        append_progress(folder, epoch)
        return not (folder / STOP_FILE).exists()

    return report


def _hung(behind: str, stack: str) -> None:
    """End this rank when the ranks make no progress: torchrun starts all again. Called from the watchdog's thread."""
    sys.stderr.write(f"the ranks stood still: {behind}; starting again\n{stack}\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
