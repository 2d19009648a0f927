"""Quickstart, tutorials and some guides, followed: each `$` line of the page runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.documentation.notebook import PAGE, outputs
from tasks.host import ports
from tasks.host.http_guard import SERVE_TOKEN, token_path
from tasks.host.workspace import Workspace
from tests.running import ROOT, Loopline
from tests.serving import LiveServer

pytestmark = pytest.mark.e2e

PAGES = (
    "start/quickstart.md",
    "tutorials/table.md",
    "tutorials/pictures.md",
    "tutorials/series.md",
    "tutorials/text-classification.md",
    "tutorials/text.md",
    "tutorials/own-net.md",
    "tutorials/own-source.md",
    "tutorials/batch.md",
    "how-to/roll-back.md",
    "how-to/canary-and-shadow.md",
)
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXIT_CODE = re.compile(r"  # exit code (\d)$")
PORT, MARK = "8000", "--- the next cell"
BEFORE = ("make setup", "source .venv/bin/activate")
"""What the environment of the tests has behind it."""


def steps(page: str) -> Iterator[tuple[str, int, list[str]]]:
    """Each command of a page, the exit code that it ends with, and lines of its output."""
    for block in BLOCK.findall((ROOT / "docs" / page).read_text()):
        for part in block.split("$ ")[1:]:
            command, *output = part.strip().splitlines()
            found = EXIT_CODE.search(command)
            yield EXIT_CODE.sub("", command), int(found[1]) if found else 0, output


def run(home: Loopline, command: str) -> tuple[int, str]:
    program, *arguments = shlex.split(command)
    if program == "loopline":
        done = home(*arguments)
        return done.code, done.out + done.err
    assert program in ("python", "cat")
    words = [sys.executable, *arguments] if program == "python" else ["bash", "-c", command]
    ended = subprocess.run(words, cwd=home.home, env=home.environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


@contextlib.contextmanager
def serving(home: Loopline, command: str, port: str) -> Iterator[None]:
    """The server that a page starts in the background."""
    running = home.start(*shlex.split(command.removesuffix(" &"))[1:])
    server = LiveServer(running.process, int(port), running.err)
    try:
        server.wait_until(lambda: server.get("/ping").status == 200)
        yield
    finally:
        assert server.end() == 0


def with_examples(home: Loopline) -> Loopline:
    """The workspace, which has the examples and the pages beside the projects, as a clone does."""
    for name in ("examples", "docs"):
        shutil.copytree(ROOT / name, home.home / name)
    return home


@pytest.mark.soak
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed(make_home: Callable[[str], Loopline], page: str) -> None:
    home, port = with_examples(make_home(Path(page).stem)), str(ports.any_free([]))
    with contextlib.ExitStack() as servers:
        for command, code, output in steps(page):
            command = command.replace(PORT, port)
            if command.endswith(" &"):
                servers.enter_context(serving(home, command, port))
            elif command not in BEFORE:
                ended, printed = run(home, command)
                assert ended == code, f"{command}\n{printed[-3000:]}"
                assert [line for line in output if line not in printed] == [], f"{command}\n{printed[-3000:]}"


@pytest.mark.wide
def test_the_notebook_runs_from_its_first_cell_to_its_last(make_home: Callable[[str], Loopline]) -> None:
    """In one Python, as its kernel does; a mark between the cells tells whose output is whose."""
    home = with_examples(make_home("notebook"))
    folder = home.home / "examples" / "notebook"
    cells = json.loads((folder / "leavers.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    shown = outputs(PAGE.read_text())
    program = f"\nprint({MARK!r})\n".join(code)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=home.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = done.stdout.split(MARK)
    assert len(printed) == len(shown) > 5
    for cell, lines in zip(printed, shown, strict=True):
        assert [line for line in lines if line not in cell] == [], cell


@pytest.mark.soak
def test_the_model_of_the_quickstart_answers_the_clients(make_home: Callable[[str], Loopline]) -> None:
    home = make_home("clients")
    home("new", "churn", "--example", "table").ok()
    home("run", "churn").ok()
    port = ports.any_free([])
    running = home.start("serve", "churn", "--port", str(port))
    server = LiveServer(running.process, port, running.err)
    try:
        server.wait_until(lambda: server.get("/ping").status == 200)
        text = (ROOT / "docs" / "start" / "quickstart.md").read_text()
        row = re.search(r"client\.py \S+ \\\n  '(.*)'", text)
        assert row is not None
        client = ROOT / "examples" / "client"
        done = subprocess.run(
            [sys.executable, str(client / "client.py"), server.url, row[1]], capture_output=True, text=True, check=True
        )
        assert '"label": ' in done.stdout
        token = token_path(Workspace(home.home), SERVE_TOKEN).read_text().strip()
        environment = {**os.environ, "URL": server.url, "TOKEN": token}
        done = subprocess.run(
            ["bash", str(client / "client.sh")], env=environment, capture_output=True, text=True, check=True
        )
        assert '"call-1"' in done.stdout
        assert '"accepted":1' in done.stdout.replace(" ", "")
    finally:
        assert server.end() == 0
