"""Work with the registry in a process of its own: a server's own processes do not import MLflow.

`python -m tasks.release.registry_jobs ROOT MODEL fetch N` fetches a version into the cache, from any store;
`... ROOT MODEL rollback N WHY ACT` rolls a version back; ACT is the id of the trial or promotion that ends.
`... ROOT MODEL look` records what was moved in MLflow.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from models.errors import LooplineError
from models.serving.releases import PROMOTION, is_one_act
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow import named_moves, release_plans
from tasks.mlflow.model_cache import fetch
from tasks.mlflow.release_plans import plan_of
from tasks.state.champion_moves import may_record, serving_state


def give_back(workspace: Workspace, model: str, version: str, cause: str, act: str = "") -> None:
    """Roll the champion back if it is this version, or end its canary; nothing where it is neither any more.

    A version that was promoted or is tried again meanwhile, by another act, stays. A server that may not record moves
    makes this one in MLflow, in its name.

    Raises:
        GateRefused: There is no champion to go back to.
        StoreError: The state database is away, or MLflow where it is needed.
    """
    actor, reason = f"server on {socket.gethostname()}", f"returned by the server: {cause}"
    state = serving_state(workspace.state, model)
    if state is None or state.is_foreign or not may_record(workspace.state):
        named_moves.give_back(model, version, actor, reason, act)
        return
    champion = state.champion
    if champion and champion.number == version:
        if is_one_act(act, champion.tags.get(PROMOTION, "")):
            open_registry(workspace, model, actor).rollback(reason, expected=version)
    elif version in plan_of(champion).versions:
        release_plans.give_back(open_registry(workspace, model, actor), version, reason, act)


def main() -> None:
    """Do one job; on failure print the reason and exit as the command line does."""
    root, model, job, *rest = sys.argv[1:]
    workspace = Workspace(Path(root))
    stores.configure(workspace)
    try:
        if job == "fetch":
            fetch(workspace, model, rest[0], workspace.cache / "models" / model / rest[0])
        elif job == "look":
            open_registry(workspace, model).look()
        else:
            give_back(workspace, model, *rest)
    except LooplineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
