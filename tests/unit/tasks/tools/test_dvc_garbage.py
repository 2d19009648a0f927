"""Objects go that only unneeded data has; the list of a folder goes last, and a shared cache is left alone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.host.workspace import Project
from tasks.tools import dvc_garbage, dvc_view
from tests.conftest import MakeProject

SHARED = "cc" * 16


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    made = make_project()
    (made.workspace.root / ".dvc").mkdir()
    return made


def place(project: Project, data_hash: str) -> Path:
    return project.workspace.root / ".dvc" / "cache" / "files" / "md5" / data_hash[:2] / data_hash[2:]


def add(project: Project, letter: str) -> str:
    """A folder of two files, one of which all folders have; gives its hash."""
    own, folder = letter * 32, f"{letter * 31}f.dir"
    for name, content in ((own, "own"), (SHARED, "shared")):
        place(project, name).parent.mkdir(parents=True, exist_ok=True)
        place(project, name).write_text(content)
    place(project, folder).write_text(json.dumps([{"md5": own, "relpath": "a"}, {"md5": SHARED, "relpath": "b"}]))
    return folder


def test_what_other_data_has_too_stays(project: Project) -> None:
    old, new, locked = add(project, "a"), add(project, "b"), add(project, "d")
    (project.workspace.root / "dvc.lock").write_text(f"stages:\n  x:\n    outs:\n    - md5: {locked}\n")
    assert [path.name for path in dvc_garbage.objects_of(project, old)][-1] == old[2:]
    assert sum(dvc_garbage.objects_of(project, old).values()) > len("own") + len("shared")
    assert dvc_garbage.remove(project, {old, locked}, {new}, from_remote=False) == {old}
    assert not place(project, old).exists()
    assert not place(project, "a" * 32).exists()
    assert all(place(project, name).exists() for name in (new, locked, "b" * 32, "d" * 32, SHARED))
    dvc_garbage.remove(project, {old}, {new}, from_remote=False)


def test_a_cache_elsewhere_may_be_shared(project: Project, tmp_path: Path) -> None:
    old = add(project, "a")
    (project.workspace.root / ".dvc" / "config").write_text(f"[cache]\n    dir = {tmp_path / 'shared'}\n")
    assert dvc_garbage.objects_of(project, old) == {}
    dvc_garbage.remove(project, {old}, set(), from_remote=False)
    assert place(project, old).exists()


def test_what_a_commit_names_stays(project: Project) -> None:
    old, committed = add(project, "a"), add(project, "b")
    root = project.workspace.root
    for command in ("init --quiet", "add dvc.lock", "-c user.name=a -c user.email=b commit --quiet --message data"):
        (root / "dvc.lock").write_text(f"    - md5: {committed}\n")
        subprocess.run(["git", "-C", str(root), *command.split()], check=True)
    (root / "dvc.lock").write_text("")
    assert dvc_view.named_hashes(project) == {committed: "a commit of git names it"}
    assert dvc_garbage.remove(project, {old, committed}, set(), from_remote=False) == {old}
    shutil.rmtree(root / ".git" / "objects")
    with pytest.raises(StoreError, match="git cannot say what its commits name"):
        dvc_garbage.remove(project, {committed}, set(), from_remote=False)
