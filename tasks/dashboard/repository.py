"""What follows when a page has changed files of the team's repository: a commit of them, and their deployments."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from models.errors import one_line
from models.launch import launched
from tasks.dashboard.approvals import PERSON
from tasks.host.workspace import HOME, Project
from tasks.prefect.prefect_server import PrefectServer
from tasks.tools.dvc_view import in_git

GIT_TIMEOUT_S = 120.0
"""A commit's hooks may check types, or fetch their tools first."""
ENDING_S = 5.0
"""How long a git that has taken too long may remove its locks, which would refuse every later commit of the team."""
ADDRESS = "pages@loopline.invalid"
"""Of the author of commits, who is known by the workspace's token alone."""


def commit(project: Project, names: Sequence[str], message: str) -> str:
    """Commit files of a project, and nothing else that is staged; return what was done, as a sentence.

    The hooks of the repository run, and may refuse; nothing is pushed. A file that cannot be committed stays written,
    and is not staged, so that the next commit of somebody else does not take it along.
    """
    if not in_git(project.folder):
        return "The workspace is in no git repository, so there is no commit."
    is_named = all(_git(project, "config", key)[1].strip() for key in ("user.name", "user.email"))
    identity = [] if is_named else _identity()
    author = f"{PERSON} <{ADDRESS}>"
    steps = (
        ("add", "--intent-to-add", "--", *names),
        (*identity, "commit", "--quiet", "--only", f"--author={author}", f"--message={message}", "--", *names),
    )
    for arguments in steps:
        is_done, text = _git(project, *arguments)
        if not is_done:
            return f"It is written, and not committed: git says: {one_line(text) or 'nothing'}."
    return f"Commit {_git(project, 'rev-parse', '--short', 'HEAD')[1].strip()} holds it; push it as your team does."


def deploy(project: Project) -> None:
    """Begin to bring a project's deployments up to date in Prefect, as `loopline deploy` does; wait for nothing.

    Without a platform there is nothing to do: the next `loopline up` deploys every project. What goes wrong stands in
    the log of the pages' service. Requests to retrain wait until the project is deployed.
    """
    if PrefectServer(project.workspace).api():
        threading.Thread(target=_deploy, args=(project,), name="loopline-deploy", daemon=True).start()


def _deploy(project: Project) -> None:
    # By its name: imports run from flows to tasks alone. Prefect's worker starts flows so, too.
    command = [sys.executable, *launched("flows.cli", "deploy", project.folder.name)]
    environment = os.environ | {HOME: str(project.workspace.root)}
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)


def _identity() -> list[str]:
    return ["-c", "user.name=Loopline", "-c", f"user.email={ADDRESS}"]


def _git(project: Project, *arguments: str) -> tuple[bool, str]:
    """Return whether a command of git succeeded, and what it printed."""
    try:
        process = subprocess.Popen(
            ["git", "-C", str(project.folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return False, str(error)
    with process:
        try:
            text, _ = process.communicate(timeout=GIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _end(process)
            return False, f"it took longer than {GIT_TIMEOUT_S:g} s and was ended, its hooks too"
    return process.returncode == 0, text


def _end(process: subprocess.Popen[str]) -> None:
    """End git and its hooks, which are its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
