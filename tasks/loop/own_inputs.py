"""What own code was seen to read, as parts of a step's key: files, listed folders, and their hashes now."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from models.files import SPEC_FILE, Hashes
from models.pipeline.keys import PACKAGE, READ, CodeReader, Parts, key_of
from models.project_spec.own_reads import Reads
from tasks.host.workspace import Project

CHANGED = "changed while the step ran"
"""In place of a hash: nobody knows what the step read, so it runs again."""
MOST_FILES = 64
"""Of one folder. Of more the whole folder counts, so that a record does not name thousands of pictures."""
_PROJECTIONS = ("dvc.yaml", "dvc.lock")


class OwnInputs:
    """The files that own code of a project reads beside what its spec names.

    Args:
        project: The project; files in its folder are named relative to it.
        hashes: Hashes of files.
        code: Reads the versions of packages.
    """

    def __init__(self, project: Project, hashes: Hashes, code: CodeReader) -> None:
        self._folder, self._hashes, self._code = project.folder, hashes, code
        self._movable = project.workspace.root if project.inside else project.folder
        self._outputs = (project.workspace.state, project.raw.parent, project.prepared)
        self._data = project.data

    def parts(self, reads: Reads, code: Iterable[str], named: Iterable[Path]) -> Parts:
        """Return `read:scale.json` -> hash, and `read:tables/` for a folder that was listed; None: it was not there.

        A folder counts by its names and the files in it: what lists it may read them unseen.

        Args:
            reads: What was seen.
            code: Files of code, which count by their fingerprints.
            named: Files and folders that other parts name.
        """
        apart = [*self._outputs, *named]
        files = {path for path in map(Path, reads.files) if str(path) not in {*code} and not _is_below(path, apart)}
        folders = {path for path in map(Path, reads.folders) if not _is_below(path, apart)}
        crowds = Counter(path.parent for path in files)
        folders |= {folder for folder, count in crowds.items() if count > MOST_FILES and folder != self._folder}
        alone = [path for path in files if path.parent not in folders or not _counts(path)]
        parts = {f"{READ}{self._name(folder)}/": self._listing(folder) for folder in folders}
        changed = {*reads.changed()}
        return parts | {
            f"{READ}{self._name(path)}": CHANGED if str(path) in changed and path.is_file() else self._hash(path)
            for path in alone
        }

    def now(self, parts: Mapping[str, object]) -> Parts:
        """Return the parts with the present hashes of what own code read, and versions of what it imported."""
        present = dict(parts)
        for part in parts:
            if part.startswith(READ):
                name = part[len(READ) :]
                path = Path(os.path.normpath(self._folder / name))
                present[part] = self._listing(path) if name.endswith("/") else self._hash(path)
        packages = [part[len(PACKAGE) :] for part in parts if part.startswith(PACKAGE)]
        return present | self._code.package_parts(packages)

    def _name(self, path: Path) -> str:
        """Return how a part names a path: relative where it moves with the workspace."""
        return os.path.relpath(path, self._folder) if path.is_relative_to(self._movable) else str(path)

    def _hash(self, path: Path) -> str | None:
        try:
            return self._hashes.of(path) if path.is_file() else None
        except OSError:  # it went away, or may not be read
            return None

    def _listing(self, folder: Path) -> str | None:
        if not folder.is_dir():
            return None
        paths = [
            path
            for path in folder.iterdir()
            if not _is_hidden(path) and path != self._data and not _is_below(path, self._outputs)
        ]
        return key_of({path.name: self._hash(path) if _counts(path) else "" for path in paths})


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether a path is one of the folders or below, by its name or by where links lead."""
    real = path.resolve()
    return any(path.is_relative_to(folder) or real.is_relative_to(folder.resolve()) for folder in folders)


def _is_hidden(path: Path) -> bool:
    """Return whether a listing leaves a name out: hidden ones, and what tools write beside a spec."""
    return path.name.startswith((".", "__pycache__")) or path.name in _PROJECTIONS


def _counts(path: Path) -> bool:
    """Return whether a file of a listed folder counts by its content; code counts if it runs, a spec by its keys."""
    return path.suffix != ".py" and path.name != SPEC_FILE and not _is_hidden(path)
