"""Runs a module of Loopline: `python -P launch.py MODULE ARGUMENT ...`.

Loopline's packages are called models, tasks and flows, and so may a team's be. An installed Loopline keeps its own in a
folder that no other Python searches; this file puts that folder before all others, in Loopline's own processes alone.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def launched(module: str, *arguments: str) -> list[str]:
    """Return the arguments of a `python` that runs a module of Loopline, or one of a library that loads Loopline."""
    return ["-P", str(ROOT / "models" / "launch.py"), module, *arguments]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
