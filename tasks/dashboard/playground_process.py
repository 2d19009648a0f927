"""The process in which a version is tried, so that the pages hold no model and a greedy one harms nothing else.

`python -m tasks.dashboard.playground_process ROOT PROJECT` reads a `RegisteredVersion` as JSON from stdin, prints its
`PlaygroundForm`, then for each `PlaygroundRequest` a `PlaygroundAnswer`, a line each, and for an empty line an empty
one. Nothing is logged as a prediction. It ends with its parent, or after a minute without a request.
"""

from __future__ import annotations

import contextlib
import math
import resource
import select
import sys
import traceback
from pathlib import Path

from models.errors import LooplineError
from models.export.bundle import example
from models.frozen_model import FrozenModel
from models.inference.loaded_model import LoadedModel
from models.serving.playground import answer, form_of
from models.serving.playground_form import PlaygroundAnswer, PlaygroundForm, PlaygroundRequest
from models.serving.registry import RegisteredVersion
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.release.fetch_and_verify import bring

IDLE_S = 60.0
MOST_MEMORY = 4 << 30
"""Bytes of address space."""
MOST_CPU_S = 60
"""Seconds of CPU to load the version, and for each request."""
FAILED = "the model cannot run on these rows; the log of this page's service says why"


def main() -> None:
    """Load the version, and answer until nobody asks any more."""
    workspace, project = Workspace(Path(sys.argv[1])), sys.argv[2]
    stores.configure(workspace)
    try:
        version = RegisteredVersion.model_validate_json(sys.stdin.readline())
        folder = bring(workspace, project, version)
        _limit(resource.RLIMIT_AS, MOST_MEMORY)
        _limit(resource.RLIMIT_CORE, 0)
        with contextlib.suppress(OSError):  # no Linux: of a machine without memory this process ends first
            Path("/proc/self/oom_score_adj").write_text("1000")
        _allow_cpu()
        model = LoadedModel(project, version.number, folder)
    except (LooplineError, MemoryError) as error:
        _say(PlaygroundForm(trouble=str(error) or f"the model needs more than {MOST_MEMORY >> 30} GiB of memory"))
        return
    _say(form_of(model.preparation, example(model.preparation)))
    while select.select([sys.stdin], [], [], IDLE_S)[0] and (line := sys.stdin.readline()):
        _allow_cpu()
        _say(_answered(model, PlaygroundRequest.model_validate_json(line)) if line.strip() else None)


def _answered(model: LoadedModel, request: PlaygroundRequest) -> PlaygroundAnswer:
    try:
        return answer(model, request)
    except Exception:  # noqa: BLE001 - ONNX Runtime has its own errors, for too little memory too
        traceback.print_exc()
        return PlaygroundAnswer(trouble=FAILED)


def _allow_cpu() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + MOST_CPU_S)


def _limit(kind: int, limit: int) -> None:
    """Lower a soft limit; at a hard one of CPU Linux kills without SIGXCPU, which tells the parent why."""
    with contextlib.suppress(ValueError, OSError):  # of a system that has no such limit, or a lower one
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))


def _say(message: FrozenModel | None) -> None:
    with contextlib.suppress(BrokenPipeError):  # its parent is gone, and so is it with the next line
        print(message.model_dump_json() if message else "", flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
