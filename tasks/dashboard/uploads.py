"""New data on its way to a project: the uploaded file or the address, and what was read of it, in the cache."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import time
import unicodedata
from pathlib import Path, PurePosixPath

from pydantic import ValidationError
from starlette.datastructures import UploadFile

from models.errors import StoreError, UsageError
from models.files import SPEC_FILE, replacing_folder, storing, write_text
from models.frozen_model import FrozenModel
from models.project_spec.reader import read_spec
from models.sources.packed import split_part
from tasks.dashboard.drafting import DraftRequest, DraftResult
from tasks.host.workspace import Project, Workspace
from tasks.platform.platform import LEAST_FREE_BYTES

KEPT_S = 86400.0
"""How long an upload waits for its project."""
DRAFT_FILE = ".draft.json"
"""No uploaded file is called so: their names begin with no dot."""
_ID = re.compile("[0-9a-f]{16}")
MOST_CHARACTERS = 50
"""Of a file's name, and of its endings."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Draft(FrozenModel):
    """New data that a person looks at: how it was asked for, what was read, and the project that was made of it."""

    request: DraftRequest
    result: DraftResult
    project: str = ""


def refuse_full_disk(workspace: Workspace, num_bytes: int) -> None:
    """Check that a body of a size leaves enough of the disk free: it lies there twice for a moment.

    Raises:
        StoreError: It does not.
    """
    free = shutil.disk_usage(workspace.root).free
    if free - 2 * num_bytes < LEAST_FREE_BYTES:
        raise StoreError(
            f"the file: got {num_bytes / 1e6:,.0f} MB, and {free / 1e9:.1f} GB are free under {workspace.root}, of "
            f"which {LEAST_FREE_BYTES / 1e9:.1f} GB stay free for loops: free some space, or register an address"
        )


def place_of(workspace: Workspace) -> Path:
    """Return the folder of all uploads, which is made."""
    place = workspace.cache / "uploads"
    with storing(place):
        place.mkdir(parents=True, exist_ok=True)
    return place


def new_folder(workspace: Workspace) -> Path:
    """Return a new folder for an upload, and remove those that have waited too long."""
    uploads = place_of(workspace)
    with storing(uploads):
        for folder in uploads.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if folder.stat().st_mtime < time.time() - KEPT_S:
                    remove(folder)
        folder = uploads / secrets.token_hex(8)
        folder.mkdir()
    return folder


def folder_of(workspace: Workspace, upload: str) -> Path | None:
    """Return the folder of an upload by its id; None if there is none."""
    folder = place_of(workspace) / upload
    return folder if _ID.fullmatch(upload) and folder.is_dir() else None


def remove(folder: Path) -> None:
    """Remove an upload."""
    shutil.rmtree(folder, ignore_errors=True)


def store_file(folder: Path, upload: UploadFile) -> Path:
    """Copy an uploaded file into a folder under the last part of its name, of harmless characters alone.

    Raises:
        UsageError: The name has no ending, which says the format.
        StoreError: The disk is full.
    """
    file_name = PurePosixPath(str(upload.filename).replace("\\", "/")).name
    parted = unicodedata.normalize("NFKD", file_name)  # a letter, then its accents
    plain = "".join(character for character in parted if not unicodedata.combining(character))
    stem, dot, endings = (_NO_NAME.sub("-", part).strip("-") for part in plain.lstrip(".").partition("."))
    name = f"{stem[:MOST_CHARACTERS] or 'data'}{dot}{endings[-MOST_CHARACTERS:]}"
    if not endings:
        raise UsageError(
            f"the file: got the name {file_name[:80]!r}, expected one whose ending says the format: rows.csv"
        )
    path = folder / name
    with storing(path), path.open("wb") as target:
        shutil.copyfileobj(upload.file, target, 1 << 20)
    return path


def store(folder: Path, draft: Draft) -> None:
    """Store what was read of new data."""
    write_text(folder / DRAFT_FILE, draft.model_dump_json())


def stored(folder: Path) -> Draft | None:
    """Return what was read of new data; None if that is not there."""
    with contextlib.suppress(OSError, ValidationError):
        return Draft.model_validate_json((folder / DRAFT_FILE).read_text())
    return None


def make_project(workspace: Workspace, folder: Path, draft: Draft) -> Project:
    """Write the project of new data as it was shown; of an upload what was read stays, so that it says what it became.

    Raises:
        UsageError: The spec is refused.
        StoreError: It cannot be written.
    """
    project = Project(workspace, workspace.root / "projects" / draft.request.name)
    file = split_part(Path(draft.request.source)).file if draft.request.is_upload else None
    with replacing_folder(project.folder) as temporary:
        for name, text in draft.result.files.items():
            write_text(temporary / name, text)
        if file:
            shutil.copyfile(file, temporary / file.name)
        read_spec(temporary / SPEC_FILE, (), str(project.spec_path))
    store(folder, draft.model_copy(update={"project": draft.request.name}))
    if file:
        file.unlink(missing_ok=True)
    return project


def columns_of(workspace: Workspace, project: str) -> list[str]:
    """Return the columns of the upload of which a project was made; none where it is too long ago."""
    drafts = [draft for folder in place_of(workspace).iterdir() if (draft := stored(folder))]
    return next((draft.result.names for draft in drafts if draft.project == project), [])
