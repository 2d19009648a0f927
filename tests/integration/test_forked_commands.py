"""The tests' forked commands are like commands that were started cold."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from models.distributed.forkserver import send
from tests import warm
from tests.clean_process import CleanProcess
from tests.warm_call import exit_code_of

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


def test_a_caller_that_is_killed_before_its_answer_ends_nobody_elses_commands(tmp_path: Path) -> None:
    server = warm.server()
    with Path(os.devnull).open("r+b") as nothing:
        files = (nothing.fileno(),) * 3
        for _ in range(5):
            caller = warm.connect(server.address)
            exit_code, told = os.pipe()
            request = ("-c", ("import time; time.sleep(60)",), dict(os.environ), str(tmp_path))
            send(caller, request, (*files, told))
            caller.close()
            os.close(told)
            assert exit_code_of(exit_code) == -signal.SIGKILL, "its command ends with it"
        process = server.start("-c", ("print(1)",), dict(os.environ), tmp_path, files)
        assert process.wait(60) == 0


def test_a_call_that_hangs_is_reported_with_its_stack(tmp_path: Path) -> None:
    def work() -> None:
        threading.Event().wait()

    with pytest.raises(AssertionError, match=r'exit code 1: Timeout(.|\n)*test_forked_commands.py", line \d+ in work'):
        CleanProcess(tmp_path / "process", work, timeout_s=1).result()
