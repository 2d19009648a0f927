"""What workers read from a clone's caches: written once in a fresh clone, on the core that is idle as a run begins.

Else each of three workers compiles each of eight hundred tests as pytest does, 10 CPU-s, since all of them begin at
once, and lists the characters of Unicode for Hypothesis, 1.5 CPU-s.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st


def begin(folder: Path) -> Callable[[], object]:
    """Write those of the tests in a package's folder in a process of its own; return what waits for its end."""
    process = multiprocessing.get_context("fork").Process(target=_write_caches, args=(folder,), daemon=True)
    process.start()
    return process.join


def _write_caches(folder: Path) -> None:
    _draw_text()
    _compile_tests(folder)


@settings(max_examples=1, database=None)
@given(st.text())
def _draw_text(_: str) -> None:
    """Nothing: Hypothesis lists the characters before it draws."""


def _compile_tests(folder: Path) -> None:
    """Begin with the last one: a worker that is here before the end begins with the first one."""
    for path in sorted(folder.rglob("test_*.py"), reverse=True):
        name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            module = importlib.util.module_from_spec(spec)
            module.__dict__["__builtins__"] = {}
            with contextlib.suppress(ImportError):  # pytest's loader writes the file and runs it: not beyond an import
                spec.loader.exec_module(module)
