"""Serve rules: what the spec of a version asks of its server."""

from __future__ import annotations

import functools
from pathlib import Path

from pydantic import ValidationError

from models.files import read_json
from models.project_spec.serve import Serve

SPEC_JSON = "spec.json"


def serve_rules_of(folder: Path) -> Serve:
    """The `serve` block of a version's spec; the defaults where it has none that can be read.

    Versions from before the spec travelled with its hash have none; one that a later Loopline wrote may not be read.
    """
    path = folder / SPEC_JSON
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return Serve()


@functools.lru_cache(maxsize=64)
def _read(path: Path, _: int) -> Serve:
    try:
        return Serve.model_validate(read_json(path).get("serve", {}))
    except ValidationError:
        return Serve()
