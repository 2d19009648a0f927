"""The provenance of a model, from which it can be rebuilt: commit, uncommitted changes, lock file."""

from __future__ import annotations

import getpass
import hashlib
import subprocess
from pathlib import Path

from tasks.host.workspace import CLONE

GIT_TIMEOUT_S = 20


def code_version(folder: Path = CLONE) -> dict[str, str]:
    """Return `commit` (empty outside git), `diff` (uncommitted changes as text), `lock` (SHA-256 of the lock file)."""
    top = _git(folder, "rev-parse", "--show-toplevel").strip()
    # An environment that holds an installed Loopline may lie in a team's repository, whose commit is not Loopline's.
    commit = _git(folder, "rev-parse", "HEAD").strip() if top and Path(top) == folder.resolve() else ""
    diff = (
        _git(
            folder,
            "diff",
            "HEAD",
            "--no-color",
            "--",
            "flows",
            "tasks",
            "models",
            "projects",
            "pyproject.toml",
        )
        if commit
        else ""
    )
    lock = CLONE / "requirements.lock"
    return {
        "commit": commit,
        "diff": diff,
        "lock": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else "",
    }


def source_tags(folder: Path) -> dict[str, str]:
    """Return the tags by which MLflow's page shows who made a run or a model, and of which commit.

    Args:
        folder: The folder of the spec; outside git there is no commit.
    """
    commit, _, branch = _git(folder, "rev-parse", "HEAD", "--abbrev-ref", "HEAD").strip().partition("\n")
    git = {"mlflow.source.git.commit": commit, "mlflow.source.git.branch": branch}
    return {
        "mlflow.user": getpass.getuser(),
        "mlflow.source.name": "loopline",
        "mlflow.source.type": "LOCAL",
        **{name: value for name, value in git.items() if value},
    }


def shown(code: dict[str, str]) -> str:
    """Return the code's version in one line: the commit, with the hash of the uncommitted changes."""
    if not code["commit"]:
        return "not in git"
    dirty = f"+{hashlib.sha256(code['diff'].encode()).hexdigest()[:12]}" if code["diff"] else ""
    return code["commit"] + dirty


def _git(folder: Path, *arguments: str) -> str:
    try:
        completed = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout if completed.returncode == 0 else ""
