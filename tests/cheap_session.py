"""A program for `import loopline` whose answers cost nothing: `python tests/cheap_session.py`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOOP = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else signal.SIG_DFL)
print("search  1/2", os.getpid(), file=sys.stderr, flush=True)
time.sleep(60)
"""


def write_program(folder: Path, text: str = "") -> Path:
    """Write a program that is this module, or a shell script with a text; return its path."""
    program, itself = folder / "loopline", f"exec {sys.executable} {__file__}"
    program.write_text(f"#!/bin/sh\n{text or itself}\n")
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from flows import session

    def echo(_: session.Session, question: session.Message) -> session.Message:
        time.sleep(question.get("seconds", 0.0))
        return {"value": question["value"], "environment": dict(os.environ)}

    def refuse(_: session.Session, question: session.Message) -> session.Message:
        raise session.LooplineError(f"{question['what']}: got this, expected that: do so")

    def loop(this: session.Session, question: session.Message) -> session.Message:
        ended = this.follow(question["id"], *question["arguments"])
        return {"code": ended.code, "printed": ended.printed, "message": ended.message}

    def own_command(_: str, *arguments: str) -> list[str]:
        return ["-c", LOOP, *arguments]

    session.launched, session.STOP_S = own_command, 0.5
    session.answer({"echo": echo, "refuse": refuse, "loop": loop, "fail": lambda *_: {"value": 1 / 0}})
