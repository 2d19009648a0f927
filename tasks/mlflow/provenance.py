"""The provenance of a model, from which it can be rebuilt: version, commits, uncommitted changes, lock file."""

from __future__ import annotations

import getpass
import hashlib
import subprocess
from pathlib import Path

from models.installation import version_of
from tasks.host.workspace import CLONE

GIT_TIMEOUT_S = 20
NO_GIT = {"commit": "", "diff": ""}


def code_version(folder: Path = CLONE) -> dict[str, str]:
    """Return Loopline's `version`, `lock` (SHA-256 of the lock file), and in a clone what `_state` returns."""
    top = _git(folder, "rev-parse", "--show-toplevel").strip()
    # An environment that holds an installed Loopline may lie in a team's repository, whose commit is not Loopline's.
    is_clone = bool(top) and Path(top) == folder.resolve()
    lock = CLONE / "requirements.lock"
    return {
        "version": version_of("loopline"),
        "lock": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.exists() else "",
        **(_state(folder, "flows", "tasks", "models", "projects", "pyproject.toml") if is_clone else NO_GIT),
    }


def project_version(folder: Path) -> dict[str, str]:
    """Return the commit of the repository that holds a project, and the uncommitted changes in the project's folder."""
    return _state(folder, ".")


def _state(folder: Path, *parts: str) -> dict[str, str]:
    """Return `commit` (empty outside git) and `diff` (uncommitted changes of the parts as text)."""
    commit = _git(folder, "rev-parse", "HEAD").strip()
    diff = _git(folder, "diff", "HEAD", "--no-color", "--", *parts) if commit else ""
    return {"commit": commit, "diff": diff}


def diff_of(code: dict[str, str], project: dict[str, str]) -> str:
    """Return all uncommitted changes; in a clone the code's hold those of its projects."""
    return code["diff"] + (project["diff"] if project["commit"] != code["commit"] else "")


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
    """Return a version in one line: the commit, with the hash of the uncommitted changes; else Loopline's own."""
    if not code["commit"]:
        return code.get("version") or "not in git"
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
