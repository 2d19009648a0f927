"""The edge bundle of a registered version: its served file, the schema, a script of twenty lines, in one folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from models.errors import StoreError, UsageError
from models.export.bundle import FILES, MODEL, bundle
from models.files import replacing_folder, sha256, write_text
from models.inference.loaded_model import LoadedModel
from tasks.host.workspace import Workspace
from tasks.mlflow.model_cache import cached_version


def export_edge(workspace: Workspace, model: str, to: Path, wanted: str = "champion") -> dict[str, Any]:
    """Write the bundle; one that is there is replaced at once, or stays as it is.

    Args:
        workspace: Where versions are cached.
        model: The registered model, called like the project.
        to: The folder to make.
        wanted: `champion`, another alias, or a number.

    Returns:
        `folder`, `version`, `files`, `sha256` of the model and `size_bytes` of it.

    Raises:
        UsageError: There is no such version, or something else is in the folder.
        StoreError: The version cannot be had, or the folder cannot be written.
    """
    _refuse_other_files(to)
    cached = cached_version(workspace, model, wanted)
    served = LoadedModel(model, cached.number, cached.folder)
    hashed = sha256(cached.folder / MODEL)
    facts = {"model": model, "version": cached.number, "SHA-256 of model.onnx": hashed}
    try:
        with replacing_folder(to) as folder:
            shutil.copyfile(cached.folder / MODEL, folder / MODEL)
            for name, text in bundle(served, facts).items():
                write_text(folder / name, text)
    except OSError as error:
        raise StoreError(f"{to}: no folder can be made there ({error.strerror}): name another") from error
    size = (to / MODEL).stat().st_size
    summary = {"folder": str(to), "version": cached.number, "files": list(FILES), "sha256": hashed, "size_bytes": size}
    return {**summary, "note": cached.note}


def _refuse_other_files(to: Path) -> None:
    """Say no to a folder that holds what no bundle has: it would be lost."""
    if to.exists() and not to.is_dir():
        raise UsageError(f"{to}: is a file, expected a folder to make")
    others = sorted(path.name for path in to.iterdir() if path.name not in FILES) if to.exists() else []
    if others:
        raise UsageError(f"{to}: holds {others[0]}, which is of no bundle: name an empty or a new folder")
