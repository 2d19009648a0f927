"""The tests' forked commands are like commands that were started cold."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests import warm

SHOWN = "import os, json; print(json.dumps(dict(os.environ)))"


def test_a_program_that_a_forked_command_starts_gets_its_variables_alone(tmp_path: Path) -> None:
    environ = {"A": "=" * 2000, "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    code = f"import os; os.execv({sys.executable!r}, ['python', '-S', '-c', {SHOWN!r}])"
    with (tmp_path / "out").open("wb") as out, Path(os.devnull).open("rb") as nothing:
        files = (nothing.fileno(), out.fileno(), out.fileno())
        process = warm.server().start("-c", (code,), environ, tmp_path, files)
        assert process.wait(60) == 0, (tmp_path / "out").read_text()
    got = json.loads((tmp_path / "out").read_text())
    got.pop("LC_CTYPE", None)  # set by Python itself where there is no locale
    assert got == environ
