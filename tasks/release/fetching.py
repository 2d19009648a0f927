"""Fetch a version into the cache by MLflow, from any store: `python -m tasks.release.fetching ROOT MODEL N`."""

from __future__ import annotations

import sys
from pathlib import Path

from models.errors import LooplineError
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.mlflow.model_cache import fetch


def main() -> None:
    """Fetch the version; exit with the reason if that fails."""
    root, model, number = sys.argv[1:]
    workspace = Workspace(Path(root))
    stores.configure(workspace)
    try:
        fetch(workspace, model, number, workspace.cache / "models" / model / number)
    except LooplineError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
