"""Removes data from DVC's cache that no version of ours needs; `dvc gc` would take what only MLflow and we name."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from tasks.host.locks import FOREVER_S, held
from tasks.host.workspace import Project
from tasks.tools import dvc_remote, dvc_view
from tasks.tools.dvc_remote import LISTING


def objects_of(project: Project, data_hash: str) -> dict[Path, int]:
    """Return the objects of data in the repository's own cache, with their bytes; the list of a folder is the last.

    Empty where the cache lacks it, or lies outside the repository: others may share it.
    """
    root = dvc_view.root_of(project)
    cache = dvc_view.cache_of(root)
    if not cache.is_relative_to(root / ".dvc"):
        return {}
    paths = [_place(cache, file) for file in _files(cache, data_hash)]
    return {path: path.stat().st_size for path in [*paths, _place(cache, data_hash)] if path.is_file()}


def remove(project: Project, unneeded: Collection[str], needed: Collection[str], *, from_remote: bool) -> set[str]:
    """Remove the objects of data, but no object that other data needs; return the hashes of the data that is gone.

    Args:
        project: A project of the repository.
        unneeded: DVC's hashes of the data that goes; what a `dvc.lock` names stays.
        needed: DVC's hashes of all data that stays; of a project elsewhere too.
        from_remote: Remove them from DVC's default remote first.

    Raises:
        StoreError: The lock, the remote or the commits of git cannot be used.
    """
    with held(project.workspace.locks / "dvc.lock", lambda: "in use", FOREVER_S):  # no commit runs meanwhile
        root = dvc_view.root_of(project)
        cache = dvc_view.cache_of(root)
        named = {*needed, *dvc_view.named_hashes(project)}
        gone = {*unneeded} - named
        if from_remote and gone and dvc_view.default_remote(root):
            dvc_remote.delete(root, gone, named)
        listed = {file for data_hash in named for file in (data_hash, *_files(cache, data_hash))}
        spared = {_place(cache, object_hash) for object_hash in listed}
        for data_hash in sorted(gone):
            for path in objects_of(project, data_hash):
                if path not in spared:
                    path.unlink(missing_ok=True)
    return gone


def _files(cache: Path, data_hash: str) -> list[str]:
    """Return the hashes of the files of a folder, from the cache; empty for a file, or if the cache lacks the list."""
    if not data_hash.endswith(LISTING):
        return []
    try:
        return [str(file["md5"]) for file in json.loads(_place(cache, data_hash).read_bytes())]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _place(cache: Path, object_hash: str) -> Path:
    return cache / "files" / "md5" / object_hash[:2] / object_hash[2:]
