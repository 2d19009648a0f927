"""Roll a version back for a server: `python -m tasks.release.rollback_main ROOT MODEL N WHY`."""

from __future__ import annotations

import sys
from pathlib import Path

from models.errors import LooplineError
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.registry_reader import aliased
from tasks.mlflow.release_plans import end, plan_of


def give_back(workspace: Workspace, model: str, version: str, why: str) -> None:
    """Roll the champion back if it is this version, or end its canary; nothing where it is neither any more.

    Raises:
        GateRefused: There is no champion to go back to.
        StoreError: The registry is unavailable.
    """
    champion = aliased(model)
    if champion is None:
        return
    reason = f"returned by the server: {why}"
    if champion.number == version:
        open_registry(workspace, model).rollback(reason, expected=version)
    elif version in plan_of(champion).versions:
        end(open_registry(workspace, model), reason, action="return")


def main() -> None:
    """Give it back; exit as the command line does."""
    root, model, version, why = sys.argv[1:]
    workspace = Workspace(Path(root))
    stores.configure(workspace)
    try:
        give_back(workspace, model, version, why)
    except LooplineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
