"""Reads the current specs of projects: again only after a change, by a server; without YAML, by a new process.

To parse the YAML of a spec takes 3 ms, to read its stored keys .1 ms.
"""

from __future__ import annotations

import contextlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from models.errors import LooplineError, StoreError
from models.files import Hashes, ParsedFiles, read_json, sha256, write_text
from models.pipeline.keys import library_parts
from models.project_spec import reader
from models.project_spec.blocks import Spec
from models.project_spec.reader import spec_document, spec_of
from tasks.host.workspace import Project, Workspace

MOST = 1000
"""Number of files whose keys are stored, each version of a file counted; some kB each."""
_read: ParsedFiles[Spec] = ParsedFiles()


class SpecDocuments:
    """The keys of spec files by the files' hashes, for one version of the parser and of our reader: `cache/specs.json`.

    Args:
        workspace: The workspace.
        hashes: The hashes of its files.
    """

    def __init__(self, workspace: Workspace, hashes: Hashes) -> None:
        self._path = workspace.cache / "specs.json"
        self._hashes = hashes
        self._parser = {**library_parts(["ruamel.yaml"]), "reader": hashes.of(Path(reader.__file__))}
        self._parsed: dict[str, Any] = {}

    @cached_property
    def _stored(self) -> dict[str, Any]:
        """What the last process stored: read once a spec is needed that this one has not read."""
        stored = read_json(self._path)
        specs = stored.get("specs") if stored.get("parser") == self._parser else None
        return specs if isinstance(specs, dict) else {}

    def of(self, project: Project) -> dict[str, Any]:
        """Return the keys of a project's spec, unchecked.

        Raises:
            UsageError: The spec cannot be parsed.
        """
        path = project.spec_path
        try:
            digest = self._hashes.of(path)
        except OSError:  # reading it raises the error
            digest = ""
        if isinstance(cached := self._stored.get(digest), dict):
            return dict(cached)
        document = spec_document(path, project.shown_spec)
        with contextlib.suppress(OSError):
            if _is_plain(document) and sha256(path) == digest:  # else the file has changed meanwhile
                self._parsed[digest] = document
        return document

    def save(self) -> None:
        """Store the keys of the files that were parsed; a failure is harmless and only costs time later."""
        if self._parsed:
            specs = dict([*self._stored.items(), *self._parsed.items()][-MOST:])
            with contextlib.suppress(OSError, StoreError):
                write_text(self._path, json.dumps({"parser": self._parser, "specs": specs}))


def current_spec(project: Project, documents: SpecDocuments | None = None) -> Spec:
    """Return the current spec of a project.

    Raises:
        UsageError: The spec has mistakes.
    """
    path = project.spec_path

    def parse() -> Spec:
        return spec_of(documents.of(project), path, shown_as=project.shown_spec) if documents else project.spec()

    return _read.of(path, parse)


def shows_rows(project: Project) -> bool:
    """Return whether the project's spec of today lets pages show rows; not if it cannot be read."""
    try:
        return current_spec(project).data.show_rows
    except LooplineError:
        return False


def current_specs(workspace: Workspace, projects: list[Project], hashes: Hashes) -> list[Spec | LooplineError]:
    """Return the current spec of each project, or the error if it cannot be read."""
    documents = SpecDocuments(workspace, hashes)
    specs = [_spec_or_error(project, documents) for project in projects]
    documents.save()
    return specs


def _spec_or_error(project: Project, documents: SpecDocuments) -> Spec | LooplineError:
    try:
        return current_spec(project, documents)
    except LooplineError as error:
        return error


def _is_plain(document: dict[str, Any]) -> bool:
    """Return whether JSON holds these keys as they are: YAML knows dates too."""
    try:
        return bool(json.loads(json.dumps(document)) == document)
    except (TypeError, ValueError):
        return False
