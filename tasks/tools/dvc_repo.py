"""DVC: the stages of a project in `dvc.yaml`, and the commit that makes a dataset version.

A project under the workspace's `projects/` is one item of the matrix in the workspace's `dvc.yaml`; a project elsewhere
has its own `dvc.yaml` beside its spec. DVC runs as a subprocess for two reasons: it depends on the working directory,
which is global to a process, and its imports (celery, kombu, hydra) would stay in the loop's memory. DVC has one lock
for a whole repository; this module waits for it.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.errors import StoreError
from models.files import DISK_IS_FULL, storing, write_json, write_text
from models.pipeline.keys import key_of
from tasks.host.locks import FOREVER_S, held
from tasks.host.workspace import CLONE, Project
from tasks.tools.dvc_view import STAGES, default_remote, hashes, in_git, lock_file, lost_objects, root_of

COMMAND = 'PATH=".venv/bin:$PATH" loopline stage'
IGNORED = ("__pycache__", ".loopline", ".venv", "*.tmp")
METRICS_FILE, CURVES_FILE = "metrics.json", "curves.csv"
CURVE_PREFIXES = ("train_", "val_")
SHOWN_CHARACTERS = 500
PROGRAM = (sys.executable, "-P", "-m", "dvc")
LOOK_S = 5.0
FULL_BYTES = 65_536  # with less free space, SQLite's shared index of a database's readers does not fit


def commit(project: Project, loop_id: str) -> dict[str, str | bool]:
    """Commit `data/` as a version: hashes into `dvc.lock`, bytes into DVC's cache and, if set, its remote.

    Returns:
        `raw` and `prepared`: DVC's hashes; `remote`: the default remote's name or empty; `is_cached`: whether the cache
        has them where this program looks, and not where a configuration of the machine says.

    Raises:
        StoreError: DVC failed; the message has its output and the cure.
    """
    root = root_of(project)
    lock = project.workspace.locks / "dvc.lock"  # dvc.yaml is one file for all projects
    with held(lock, lambda: f"{root}: in use", FOREVER_S):
        _ensure_repository(root)
        project.workspace.make_private(root / ".dvc" / "cache")
        add_stages(project)
        targets = [_address(project, root, stage) for stage in STAGES]
        _keep_lock_file(project)
        _dvc(root, "commit", "--force", *targets)
        _annotate(project, loop_id)
    remote = default_remote(root)
    if remote:
        _dvc(root, "push", *targets)
    file_hashes = hashes(project)
    if not file_hashes:
        raise StoreError(f"{root}: dvc.lock does not name the data that `dvc commit` has just taken: is it ignored?")
    return {**file_hashes, "remote": remote, "is_cached": not lost_objects(project, file_hashes.values())}


def _keep_lock_file(project: Project) -> None:
    """Keep a copy of the whole `dvc.lock`, or put it back where a killed commit left the file torn.

    DVC truncates the file before it writes it anew (3.67, `_dump_data`). What it writes ends with a line break, so a
    file without one is torn; a file with a merge's conflict is not, and stays for the user.
    """
    path = lock_file(project)
    copy = project.workspace.cache / "dvc" / f"{key_of({'path': str(path)})[:16]}.lock"
    with storing(path):
        text = path.read_text() if path.exists() else ""
        if text.endswith("\n"):
            write_text(copy, text)
        elif copy.exists():
            write_text(path, copy.read_text())
        elif not text:  # torn in the first commit; what has text and no copy is for DVC to refuse
            path.unlink(missing_ok=True)


def _address(project: Project, root: Path, stage: str) -> str:
    if project.inside:
        return f"{stage}@{project.folder.name}"
    return f"{(project.folder / 'dvc.yaml').relative_to(root)}:{stage}"


def _dvc(root: Path, command: str, *arguments: str) -> None:
    """Run a DVC command, without `--quiet`, which would also hide errors.

    On a full disk it may never end: `diskcache` (5.6.3, `Cache._transact`) retries forever if SQLite cannot begin a
    transaction. So this function checks the disk every LOOK_S seconds, and kills the command if the disk is full.
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
            f"`dvc {command}` in {root} failed: {output}: correct it and run again; the data in data/ is whole"
        )


def _ended(process: subprocess.Popen[str], root: Path) -> tuple[str, str]:
    """Wait for the process and return its output; raise StoreError if the disk is full at two checks in a row."""
    was_full = False
    while True:
        try:
            return process.communicate(timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            written = (root, Path(os.environ.get("DVC_SITE_CACHE_DIR", root)))
            full = [str(path) for path in written if path.exists() and shutil.disk_usage(path).free < FULL_BYTES]
            if full and was_full:
                raise StoreError(f"{full[0]}: {DISK_IS_FULL}") from None
            was_full = bool(full)


def _ensure_repository(root: Path) -> None:
    """Create a DVC repository in `root` if needed, with or without git, and complete its `.dvcignore`."""
    git = in_git(root)
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


def add_stages(project: Project) -> None:
    """Add the project's missing stages to `dvc.yaml`; the user's own content is not rewritten."""
    path = (project.workspace.root if project.inside else project.folder) / "dvc.yaml"
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
    """Write the loop that made the version as metadata of a DVC artifact in the project's own `dvc.yaml`."""
    path = project.folder / "dvc.yaml"
    document = _load(path)
    artifacts = document.setdefault("artifacts", {})
    artifacts[project.folder.name.replace("_", "-")] = {
        "path": "data/prepared",
        "type": "dataset",
        "meta": {"loopline.loop_id": loop_id},
    }
    _dump(path, document)


def write_results(
    project: Project, loop_id: str, metrics: Mapping[str, Any], epochs: Sequence[Mapping[str, float]]
) -> None:
    """Write a loop's results where `dvc metrics`, `dvc plots` and `dvc exp show` read them: beside the spec, for git.

    Args:
        project: The project.
        loop_id: The loop.
        metrics: The verdict's numbers, nested by where they were measured.
        epochs: The values of each epoch of the model's training; empty for a model without epochs.
    """
    names = {name for epoch in epochs for name in epoch if name.startswith(CURVE_PREFIXES)}
    curves = sorted(name for name in names if not name.endswith("_se"))  # a standard error is no curve of its own
    path = project.folder / "dvc.yaml"
    with held(project.workspace.locks / "dvc.lock", lambda: f"{path}: in use", FOREVER_S), storing(path):
        write_json(project.folder / METRICS_FILE, {"loop": loop_id, **metrics})
        document = _load(path)
        metric_files = document.setdefault("metrics", [])
        metric_files += [METRICS_FILE] * (METRICS_FILE not in metric_files)
        if curves:
            rows: list[list[Any]] = [
                [number, *(epoch.get(name, "") for name in curves)] for number, epoch in enumerate(epochs, 1)
            ]
            lines = [",".join(str(value) for value in row) for row in (["epoch", *curves], *rows)]
            write_text(project.folder / CURVES_FILE, "\n".join([*lines, ""]))
            plots = document.setdefault("plots", [])
            ours = next((plot for plot in plots if CURVES_FILE in plot), None)
            if ours is None:
                plots.append(ours := {})
            ours[CURVES_FILE] = {"x": "epoch", "y": curves}
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
    """Return a stage: `ingest` depends on the source named in the spec, `prepare` on raw data, spec and our code."""
    where = "projects/${item.project}/" if project.inside else ""
    folder = "${item.project}" if project.inside else "."
    stage: dict[str, Any] = {"matrix": {"project": []}} if project.inside else {}
    stage["cmd"] = f"{COMMAND} {name} {folder}"
    if name == "prepare":
        code = ["models/data"] if project.inside and project.workspace.root == CLONE else []
        stage["deps"] = [f"{where}data/raw", *code]
    stage["params"] = [{f"{where}project.yaml": ["data.source" if name == "ingest" else "data"]}]
    # `persist` keeps the output until the command replaces it: DVC would delete it first, even if the command cannot
    # start.
    stage["outs"] = [{f"{where}data/{'raw' if name == 'ingest' else 'prepared'}": {"persist": True}}]
    return stage
