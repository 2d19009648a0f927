"""Moves the champion for a button, in a subprocess, so that the server of the pages never imports MLflow.

`python -m tasks.dashboard.acting ROOT` reads an `ActionRequest` as JSON from stdin and prints an `ActionResult`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from models.errors import LooplineError
from models.frozen_model import FrozenModel
from tasks.host import stores
from tasks.host.workspace import Workspace

TIMEOUT_S = 120.0


class ActionRequest(FrozenModel):
    """The requested action; `expected` is the champion that the page showed."""

    action: Literal["promote", "rollback"]
    model: str
    version: str | None = None
    expected: str | None = None
    reason: str = ""


class ActionResult(FrozenModel):
    """The result of an action, with a text for the person."""

    done: bool
    text: str


def act(workspace: Workspace, request: ActionRequest) -> ActionResult:
    """Run the action in a subprocess and wait for it; a refusal is a result, not an error."""
    command = [sys.executable, "-m", __name__, str(workspace.root)]
    try:
        ended = subprocess.run(
            command,
            input=request.model_dump_json(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=Path(__file__).parents[2],
            check=False,
        )
        return ActionResult.model_validate_json(ended.stdout)
    except subprocess.TimeoutExpired:
        return ActionResult(
            done=False, text=f"it took longer than {TIMEOUT_S:g} s and was ended: reload the page to see its result"
        )
    except ValidationError:
        print(ended.stderr, file=sys.stderr, flush=True)  # noqa: T201 - to the service's log; clients get no traceback
        return ActionResult(done=False, text="it failed; the log of this page's service says why")


def carry_out(workspace: Workspace, request: ActionRequest) -> ActionResult:
    """Move the champion by compare-and-swap."""
    from tasks.loop.champion import open_registry

    try:
        registry = open_registry(workspace, request.model)
        if request.action == "rollback":
            entry = registry.rollback(request.reason, request.expected)
            return ActionResult(
                done=True, text=f"Version {entry.after} is the champion again, version {entry.before} is not."
            )
        version = request.version or ""
        registry.tags(version)  # raises for a missing version, before anything moves
        entry = registry.promote(version, request.expected, reason=request.reason)
        before = f", in the place of version {entry.before}" if entry.before else ""
        return ActionResult(done=True, text=f"Version {entry.after} is the champion{before}.")
    except LooplineError as error:
        return ActionResult(done=False, text=str(error))


def main() -> None:
    """Carry out one request from stdin."""
    workspace = Workspace(Path(sys.argv[1]))
    stores.configure(workspace)
    print(carry_out(workspace, ActionRequest.model_validate_json(sys.stdin.read())).model_dump_json())  # noqa: T201 - the result


if __name__ == "__main__":
    main()
