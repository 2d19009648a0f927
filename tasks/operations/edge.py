"""The edge bundle of a registered version: a folder with its served file, the schema and a script."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from models.errors import StoreError, UsageError
from models.export.bundle import FILES, bundle
from models.files import replacing_folder, sha256, write_text
from models.inference.loaded_model import LoadedModel
from models.inference.portable import MODEL_FILE
from tasks.host.workspace import Workspace
from tasks.mlflow.model_cache import cached_version


def export_edge(workspace: Workspace, model: str, to: Path, requested: str = "champion") -> dict[str, Any]:
    """Write the bundle; an existing bundle is replaced atomically, or stays as it is on an error.

    Args:
        workspace: The workspace whose cache holds versions.
        model: The registered model's name, which is the project's.
        to: The folder to create.
        requested: `champion`, another alias, or a version number.

    Returns:
        `folder`, `version`, `files`, the model's `sha256` and `size_bytes`, and `note`.

    Raises:
        UsageError: There is no such version, or the folder holds other files.
        StoreError: The version cannot be fetched, or the folder cannot be written.
    """
    _refuse_other_files(to)
    cached = cached_version(workspace, model, requested)
    served = LoadedModel(model, cached.number, cached.folder)
    hashed = sha256(cached.folder / MODEL_FILE)
    facts = {"model": model, "version": cached.number, "SHA-256 of model.onnx": hashed}
    try:
        with replacing_folder(to) as folder:
            shutil.copyfile(cached.folder / MODEL_FILE, folder / MODEL_FILE)
            for name, text in bundle(served, facts).items():
                write_text(folder / name, text)
    except OSError as error:
        raise StoreError(f"{to}: no folder can be made there ({error.strerror}): name another") from error
    size = (to / MODEL_FILE).stat().st_size
    summary = {"folder": str(to), "version": cached.number, "files": list(FILES), "sha256": hashed, "size_bytes": size}
    return {**summary, "note": cached.note}


def _refuse_other_files(to: Path) -> None:
    """Refuse a folder with files that belong to no bundle: replacing it would delete them."""
    if to.exists() and not to.is_dir():
        raise UsageError(f"{to}: is a file, expected a folder to make")
    foreign = sorted(path.name for path in to.iterdir() if path.name not in FILES) if to.exists() else []
    if foreign:
        raise UsageError(f"{to}: holds {foreign[0]}, which is of no bundle: name an empty or a new folder")
