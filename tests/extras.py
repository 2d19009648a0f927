"""Modules of tests that need libraries of the extras are skipped without them, and import none to say so."""

from __future__ import annotations

import importlib.util

import pytest


def needs_extras(*libraries: str) -> None:
    """Skip the module that calls it unless all are installed: `make setup EXTRAS=estimators`."""
    if not all(importlib.util.find_spec(library) for library in libraries):
        pytest.skip("make setup EXTRAS=estimators", allow_module_level=True)
