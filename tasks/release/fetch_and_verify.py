"""Model download for serving: every file is verified, then a smoke test runs before any request.

Work that needs MLflow, or that may crash, runs in short-lived processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from models.errors import StoreError
from models.launch import launched
from models.serving.registry import RegisteredVersion
from models.signing import TAG, is_signed
from tasks.host.workspace import CLONE, Workspace
from tasks.mlflow.model_cache import cached_copy, signing_key

FETCH_S = 600.0
TRIAL_S = 120.0


def bring(workspace: Workspace, model: str, version: RegisteredVersion) -> Path:
    """Return a version's folder in the cache, with verified file hashes and, if a key is set, a verified signature.

    Raises:
        StoreError: The version cannot be downloaded, or is not what was registered.
    """
    hashes = version.hashes
    name, key = f"{model} version {version.number}", signing_key()
    if not hashes:
        raise StoreError(f"{name}: nothing says what its files should be: register it by `loopline run {model}`")
    if key and not is_signed(key, model, hashes, version.tags.get(TAG, "")):
        raise StoreError(f"{name}: is not signed with this server's key: register it where LOOPLINE_SIGNING_KEY is set")
    return cached_copy(workspace, model, version, _fetched_elsewhere).folder


def try_out(model: str, number: str, folder: Path) -> None:
    """Load a version in a separate process and let it predict: a crash there does not affect the server.

    Raises:
        StoreError: The version does not load, does not predict, or its inputs differ from its preparation.
    """
    _run("tasks.release.smoke_test", TRIAL_S, model, number, str(folder))


def _fetched_elsewhere(workspace: Workspace, model: str, number: str, _: Path) -> None:
    """Download a version by MLflow in a separate process, from a store of any kind."""
    _run("tasks.release.registry_jobs", FETCH_S, str(workspace.root), model, "fetch", number)


def _run(module: str, longest_s: float, *arguments: str) -> None:
    command = [sys.executable, *launched(module, *arguments)]
    try:
        completed = subprocess.run(
            command, cwd=CLONE, env=os.environ, capture_output=True, text=True, timeout=longest_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise StoreError(
            f"{module}: not done within {longest_s:g} s: it is tried again; look at the load and the store"
        ) from error
    if completed.returncode < 0:
        raise StoreError(
            f"it crashed the process that tested it (signal {-completed.returncode}): look at its memory, or train it "
            "anew"
        )
    if completed.returncode:
        lines = completed.stderr.strip().splitlines()
        raise StoreError(
            lines[-1]
            if lines
            else f"{module} failed and said nothing: it is tried again; look at the load and the store"
        )
