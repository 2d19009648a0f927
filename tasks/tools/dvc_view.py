"""Reads a project's DVC repository without importing DVC: its folder, its remote, the hashes in `dvc.lock`."""

from __future__ import annotations

import configparser
import contextlib
import json
import re
import subprocess
from collections.abc import Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from models.errors import StoreError, one_line
from models.files import ParsedFiles
from tasks.host.workspace import Project

_HASH = re.compile(r"\bmd5: *(\S+)")
STAGES = {"ingest": "raw", "prepare": "prepared"}
_locks: ParsedFiles[str] = ParsedFiles()
_configs: ParsedFiles[configparser.ConfigParser] = ParsedFiles()
"""Of a hundred projects of a workspace, which have one of each."""


def root_of(project: Project) -> Path:
    """Return the folder for `.dvc`: the workspace of a project inside; else the nearest above, or the project's own."""
    if project.inside:
        return project.workspace.root
    above = (folder for folder in (project.folder, *project.folder.parents) if (folder / ".dvc").is_dir())
    return next(above, project.folder)


def default_remote(root: Path) -> str:
    """Return the name of DVC's default remote; empty without one.

    Raises:
        StoreError: DVC's configuration cannot be read.
    """
    return _configured(root, "core", "remote")


def _configured(root: Path, section: str, option: str) -> str:
    """Return a setting of the repository's configuration; empty without one."""
    paths = (root / ".dvc" / "config.local", root / ".dvc" / "config")
    settings = (_configs.of(path, partial(_config, path)).get(section, option, fallback=None) for path in paths)
    return next((setting.strip() for setting in settings if setting is not None), "")


def _config(path: Path) -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(path)
    except (configparser.Error, UnicodeDecodeError) as error:
        reason = one_line(error, 200)
        cure = "correct it, or move it away and run `dvc init --force` and `dvc remote add` again"
        raise StoreError(f"{path}: expected DVC's configuration, got: {reason}: {cure}") from error
    return config


def lock_file(project: Project) -> Path:
    """Return the `dvc.lock` of the project; those of a workspace share one."""
    return (project.workspace.root if project.inside else project.folder) / "dvc.lock"


def lost_objects(project: Project, file_hashes: Iterable[str]) -> list[Path]:
    """Return the files that the cache lacks of data with these hashes; of a folder without a list, the list alone.

    Source: https://dvc.org/doc/user-guide/project-structure/internal-files#structure-of-the-cache-directory
    """
    cache = cache_of(root_of(project)) / "files" / "md5"
    lost = []
    for name in file_hashes:
        objects = [name]
        if name.endswith(".dir"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                objects += [str(file["md5"]) for file in json.loads((cache / name[:2] / name[2:]).read_bytes())]
        paths = (cache / object_hash[:2] / object_hash[2:] for object_hash in objects)
        lost += [path for path in paths if not path.is_file()]
    return lost


def cached_file(project: Project, data_hash: str, name: str) -> Path | None:
    """Return where the cache has a file of the data with this hash; None: it has it no more, or never had."""
    cache = cache_of(root_of(project)) / "files" / "md5"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        listed = json.loads((cache / data_hash[:2] / data_hash[2:]).read_bytes())
        digest = next((str(file["md5"]) for file in listed if file["relpath"] == name), "")
        path = cache / digest[:2] / digest[2:]
        return path if digest and path.is_file() else None
    return None


def cache_of(root: Path) -> Path:
    """Return the folder of DVC's cache that the repository's own configuration names."""
    folder = _configured(root, "cache", "dir")
    return root / ".dvc" / (Path(folder).expanduser() if folder else "cache")


def in_git(root: Path) -> bool:
    """Return whether a folder lies in a clone of git."""
    return any((folder / ".git").exists() for folder in (root, *root.parents))


def named_hashes(project: Project) -> dict[str, str]:
    """Return the hashes of all data that a `dvc.lock` names, of other projects and stages too, and which one it is.

    Raises:
        StoreError: The project lies in a clone of git whose commits cannot be read.
    """
    path = lock_file(project)
    committed = _committed(path) if in_git(path.parent) else ""
    locked = path.read_text() if path.exists() else ""
    return dict.fromkeys(_HASH.findall(committed), "a commit of git names it") | dict.fromkeys(
        _HASH.findall(locked), "dvc.lock names it"
    )


def _committed(path: Path) -> str:
    """Return all lines that commits of any branch added to a file."""
    command = ["git", "-C", str(path.parent), "log", "--all", "--format=", "--patch", "--", path.name]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        reason = one_line(getattr(error, "stderr", "") or error, 200)
        raise StoreError(f"{path}: git cannot say what its commits name ({reason}): install or correct git") from error


def hashes(project: Project) -> dict[str, str]:
    """Return DVC's hashes of the project's raw and prepared data from `dvc.lock`; empty if it has none."""
    from ruamel.yaml.error import YAMLError

    suffix, path = f"@{project.folder.name}" if project.inside else "", lock_file(project)
    try:
        text = _locks.of(path, path.read_text)
        return {name: _first_output(text, stage + suffix) for stage, name in STAGES.items()}
    except (OSError, YAMLError, KeyError, IndexError, TypeError):
        return {}


def _first_output(text: str, stage: str) -> str:
    """Return the hash of a stage's first output; of a workspace's file, as DVC writes it, only its lines are parsed."""
    lines = re.search(rf"^  {re.escape(stage)}:\n(?:(?:   .*)?\n)*", text, re.MULTILINE)
    return str(_stages(f"stages:\n{lines[0]}" if lines else text)[stage]["outs"][0]["md5"])


@lru_cache(maxsize=1000)
def _stages(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(text)["stages"]
