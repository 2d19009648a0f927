"""DVC: the stages of a project in `dvc.yaml`, and the commit that makes a dataset version.

A project under the workspace's `projects/` is one item of the matrix in the workspace's `dvc.yaml`; one elsewhere has
a `dvc.yaml` of its own beside its spec. DVC runs as a program: it goes by the working directory, which is the whole
process's, and its imports (celery, kombu, hydra) would stay in the loop's memory. It has one lock for a whole
repository: we wait for it.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from models.errors import StoreError
from models.files import DISK_IS_FULL, storing, write_text
from tasks.host.locks import FOREVER_S, held
from tasks.host.workspace import CLONE, Project
from tasks.tools.dvc_view import STAGES, default_remote, hashes, root_of

COMMAND = 'PATH=".venv/bin:$PATH" loopline stage'
IGNORED = ("__pycache__", ".loopline", ".venv", "*.tmp")
SHOWN_CHARACTERS = 500
PROGRAM = (sys.executable, "-P", "-m", "dvc")
LOOK_S = 5.0
FULL_BYTES = 65_536  # less does not hold the index that SQLite shares among a database's readers


def commit(project: Project, loop_id: str) -> dict[str, str]:
    """Make what lies in `data/` a version: hashes into `dvc.lock`, bytes into DVC's cache and, when set, its remote.

    Returns:
        `raw` and `prepared`: DVC's hashes; `remote`: the default remote's name or empty.

    Raises:
        StoreError: DVC refused; its words and the cure.
    """
    root = root_of(project)
    lock = project.workspace.locks / "dvc.lock"  # dvc.yaml is one file for all projects
    with held(lock, lambda: f"{root}: in use", FOREVER_S):
        _ensure_repository(root)
        _ensure_stages(project, root)
        targets = [_address(project, root, stage) for stage in STAGES]
        _dvc(root, "commit", "--force", *targets)
        _annotate(project, loop_id)
    remote = default_remote(root)
    if remote:
        _dvc(root, "push", *targets)
    file_hashes = hashes(project)
    if not file_hashes:
        raise StoreError(f"{root}: dvc.lock does not name the data that `dvc commit` has just taken: is it ignored?")
    return {**file_hashes, "remote": remote}


def _address(project: Project, root: Path, stage: str) -> str:
    if project.inside:
        return f"{stage}@{project.folder.name}"
    return f"{(project.folder / 'dvc.yaml').relative_to(root)}:{stage}"


def _dvc(root: Path, command: str, *arguments: str) -> None:
    """Run DVC, without `--quiet`, which hides errors too.

    On a full disk it may never end: `diskcache` (5.6.3, `Cache._transact`) tries again for ever where SQLite cannot
    begin a transaction. We look now and then, and end it.
    """
    argv = [*PROGRAM, "--wait-for-lock", command, *arguments]
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = _ended(process, root)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        output = " ".join((err or out).split())[-SHOWN_CHARACTERS:] or f"exit code {process.returncode}"
        raise StoreError(
            f"`dvc {command}` in {root} failed: {output}: put it right and run again; the data in data/ is whole"
        )


def _ended(process: subprocess.Popen[str], root: Path) -> tuple[str, str]:
    """Return its output once it ends; a full disk twice in a row is a StoreError."""
    was_full = False
    while True:
        try:
            return process.communicate(timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            written = (root, Path(os.environ.get("DVC_SITE_CACHE_DIR", root)))
            full = [str(one) for one in written if one.exists() and shutil.disk_usage(one).free < FULL_BYTES]
            if full and was_full:
                raise StoreError(f"{full[0]}: {DISK_IS_FULL}") from None
            was_full = bool(full)


def _ensure_repository(root: Path) -> None:
    """A DVC repository in `root`, with git or without, that keeps quiet."""
    git = _in_git(root)
    with storing(root):
        if not (root / ".dvc").is_dir():
            _dvc(
                root,
                "init",
                *([] if git else ["--no-scm"]),
                *(["--subdir"] if git and not (root / ".git").exists() else []),
            )
        local = root / ".dvc" / "config.local"
        if not git and not local.exists():
            write_text(local, "[core]\n    no_scm = true\n")  # a clone copied without its .git
        ignore = root / ".dvcignore"
        lines = ignore.read_text().splitlines() if ignore.exists() else []
        if missing := [line for line in IGNORED if line not in lines]:
            write_text(ignore, "\n".join([*lines, *missing]) + "\n")


def _in_git(root: Path) -> bool:
    return any((folder / ".git").exists() for folder in (root, *root.parents))


def _ensure_stages(project: Project, root: Path) -> None:
    """The project's stages in `dvc.yaml`; only a missing project is added, nothing of the user's is rewritten."""
    path = (root if project.inside else project.folder) / "dvc.yaml"
    document = _load(path)
    stages = document.setdefault("stages", {})
    changed = False
    for name in STAGES:
        if name not in stages:
            stages[name] = _stage(project, name)
            changed = True
        if project.inside and project.folder.name not in stages[name]["matrix"]["project"]:
            stages[name]["matrix"]["project"].append(project.folder.name)
            changed = True
    if changed:
        _dump(path, document)


def _annotate(project: Project, loop_id: str) -> None:
    """Name the loop that made the version, as metadata of a DVC artifact in the project's own `dvc.yaml`."""
    path = project.folder / "dvc.yaml"
    document = _load(path)
    artifacts = document.setdefault("artifacts", {})
    artifacts[project.folder.name.replace("_", "-")] = {
        "path": "data/prepared",
        "type": "dataset",
        "meta": {"loopline.loop_id": loop_id},
    }
    _dump(path, document)


def _load(path: Path) -> Any:
    from ruamel.yaml import YAML

    return (YAML(typ="rt").load(path.read_text()) if path.exists() else None) or {}


def _dump(path: Path, document: Any) -> None:
    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML(typ="rt").dump(document, text)
    write_text(path, text.getvalue())


def _stage(project: Project, name: str) -> dict[str, Any]:
    """One stage: `ingest` depends on the spec's source, `prepare` on the raw data, the spec and our code."""
    where = "projects/${item.project}/" if project.inside else ""
    folder = "${item.project}" if project.inside else "."
    stage: dict[str, Any] = {"matrix": {"project": []}} if project.inside else {}
    stage["cmd"] = f"{COMMAND} {name} {folder}"
    if name == "prepare":
        code = ["models/data"] if project.inside and project.workspace.root == CLONE else []
        stage["deps"] = [f"{where}data/raw", *code]
    stage["params"] = [{f"{where}project.yaml": ["data.source" if name == "ingest" else "data"]}]
    # Kept until the command has made it anew: DVC would remove it first, also where the command cannot start.
    stage["outs"] = [{f"{where}data/{'raw' if name == 'ingest' else 'prepared'}": {"persist": True}}]
    return stage
