"""Moves the champion, or changes its release, for a button: in a subprocess, so that the pages never import MLflow.

`python -m tasks.dashboard.acting ROOT` reads an `ActionRequest` as JSON from stdin and prints an `ActionResult`. It
imports MLflow first, which takes seconds: the page that asks for confirmation starts it, so it is ready for the answer.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from models.errors import LooplineError, StoreError
from models.frozen_model import FrozenModel
from models.launch import launched
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.client import reaching_store
from tasks.mlflow.embedded_store import open_client
from tasks.mlflow.release_plans import begin, stop

if TYPE_CHECKING:
    from tasks.mlflow.registry import Registry

TIMEOUT_S = 120.0
FOLLOW = "Servers follow within two seconds."
READY_S = 300.0
"""How long a process that was started early waits for its request."""
_lock = threading.Lock()
_ready: dict[Path, subprocess.Popen[str]] = {}
"""By workspace, the process that was started early, if one was."""


class ActionRequest(FrozenModel):
    """The requested action; `expected` is the champion that the page showed, `move` the newest move that it knew."""

    action: Literal["promote", "rollback", "canary", "shadow", "end", "return"]
    model: str
    version: str | None = None
    share: float | None = None
    expected: str | None = None
    move: int | None = None
    reason: str = ""


class ActionResult(FrozenModel):
    """The result of an action, with a text for the person."""

    done: bool
    text: str


def prepare(workspace: Workspace) -> None:
    """Start the process that the next action will run in, unless one waits already."""
    with _lock:
        waiting = _ready.get(workspace.root)
        if waiting is None or waiting.poll() is not None:
            _ready[workspace.root] = _started(workspace)


def act(workspace: Workspace, request: ActionRequest) -> ActionResult:
    """Run the action in a subprocess and wait for it; a refusal is a result, not an error."""
    with _lock:
        process = _ready.pop(workspace.root, None)
    if process is None or process.poll() is not None:
        process = _started(workspace)
    with process:
        try:
            out, trouble = process.communicate(request.model_dump_json(), TIMEOUT_S)
            return ActionResult.model_validate_json(out)
        except subprocess.TimeoutExpired:
            process.kill()
            return ActionResult(
                done=False, text=f"it took longer than {TIMEOUT_S:g} s and was ended: reload the page to see its result"
            )
        except ValidationError:
            print(trouble, file=sys.stderr, flush=True)  # noqa: T201 - to the service's log; clients get no traceback
            return ActionResult(done=False, text="it failed; the log of this page's service says why")


def _started(workspace: Workspace) -> subprocess.Popen[str]:
    command = [sys.executable, *launched(__name__, str(workspace.root))]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=Path(__file__).parents[2])


def carry_out(workspace: Workspace, request: ActionRequest) -> ActionResult:
    """Carry out the action, unless somebody changed meanwhile what the page showed."""
    try:
        text = _ACTS[request.action](open_registry(workspace, request.model, "dashboard"), request)
        return ActionResult(done=True, text=text)
    except LooplineError as error:
        return ActionResult(done=False, text=str(error))


def _promote(registry: Registry, request: ActionRequest) -> str:
    version = request.version or ""
    registry.tags(version)  # raises for a missing version, before anything moves
    move = registry.promote(version, request.expected, reason=request.reason)
    before = f", in the place of version {move.before}" if move.before else ""
    return f"Version {move.after} is the champion{before}."


def _roll_back(registry: Registry, request: ActionRequest) -> str:
    move = registry.rollback(request.reason, request.expected)
    before = f", version {move.before} is not" if move.before else ""
    return f"Version {move.after} is the champion again{before}."


def _begin_canary(registry: Registry, request: ActionRequest) -> str:
    begin(registry, request.version, request.reason, share=request.share, expected=request.move)
    return f"Version {request.version} answers {request.share:.0%} of the requests. {FOLLOW}"


def _begin_shadow(registry: Registry, request: ActionRequest) -> str:
    begin(registry, request.version, request.reason, is_shadow=True, expected=request.move)
    return f"Version {request.version} is a shadow. {FOLLOW}"


def _stop(registry: Registry, request: ActionRequest) -> str:
    move = stop(registry, request.reason, is_return=request.action == "return", expected=request.move)
    return f"Version {move.after} answers alone. {FOLLOW}"


_ACTS: dict[str, Callable[[Registry, ActionRequest], str]] = {
    "promote": _promote,
    "rollback": _roll_back,
    "canary": _begin_canary,
    "shadow": _begin_shadow,
    "end": _stop,
    "return": _stop,
}


def main() -> None:
    """Carry out one request from stdin; end if none comes."""
    workspace = Workspace(Path(sys.argv[1]))
    stores.configure(workspace)
    # MLflow is imported, and its store opened, before the request comes.
    with contextlib.suppress(StoreError), reaching_store():  # the action itself tells what is wrong
        open_client(workspace).search_registered_models(max_results=1)
    if not select.select([sys.stdin], [], [], READY_S)[0]:
        return
    result = carry_out(workspace, ActionRequest.model_validate_json(sys.stdin.read()))
    print(result.model_dump_json(), flush=True)  # noqa: T201 - the result
    os._exit(0)  # to take down an interpreter with MLflow takes seconds on a busy machine, and the person waits for it


if __name__ == "__main__":
    main()
