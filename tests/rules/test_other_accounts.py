"""Another account of this machine can neither write nor read a file of a workspace, and no service answers it."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tasks.dashboard.app import application
from tasks.dashboard.guard import OPEN
from tasks.host.workspace import STATE, Workspace
from tests.running import Loopline

NOBODY = 65534
ENTER = f"""
import os, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
touched = []
for top in sys.argv[1:]:
    for folder, _, files in os.walk(top):
        if os.access(folder, os.W_OK): touched.append(f"write:{{folder}}")
        private = any(part in folder for part in ("/.loopline", "/data", "/.dvc/cache"))
        for path in (os.path.join(folder, name) for name in files):
            if os.access(path, os.W_OK): touched.append(f"write:{{path}}")
            if private and os.access(path, os.R_OK): touched.append(f"read:{{path}}")
print("\\n".join(touched))
"""
"""What another account may do with the files below some folders: all it may write, and what it may read of our own."""


@pytest.fixture
def careless() -> Iterator[Path]:
    """A folder that everybody can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def touched_by_others(*folders: Path) -> list[str]:
    if os.getuid():
        pytest.skip("only root can become another account")
    command = [sys.executable, "-S", "-c", ENTER, *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.split()


def loopline(home: Loopline, *arguments: str) -> None:
    """A command whose umask is 0; DVC has it by the tests' warm parent, which has the usual one."""
    home.python(
        "import os, sys; from tests import warm; os.umask(0); warm.keep_ranks_ready(); "
        f"sys.argv[1:] = {arguments}; from flows.cli import main; main()"
    )


@pytest.mark.e2e
def test_a_loop_leaves_nothing_for_others(careless, empty_store, empty_prefect, api):
    home = Loopline(careless / "home", {"PREFECT_API_URL": api})
    home.begin(empty_store, empty_prefect)
    for folder in (home.home, home.home / STATE, home.home / STATE / "dvc" / "site"):  # as an older Loopline left it
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755 if folder == home.home else 0o777)
    with (careless / "table.csv").open("w") as table:
        table.write("x,y\n" + "".join(f"{i / 7},{'yes' if i % 3 else 'no'}\n" for i in range(300)))
    (home.home / "projects").mkdir(mode=0o755)
    loopline(home, "new", "tiny", "--from", str(careless / "table.csv"), "--target", "y")
    settings = ("search.trials=0", "train.epochs=1", "search.families=[linear]")
    loopline(home, "run", "tiny", *(word for setting in settings for word in ("-s", setting)))
    assert home.versions("tiny") == [1]
    assert (home.home / "projects" / "tiny" / "data" / "raw" / "raw.parquet").exists()
    assert list((home.home / ".dvc" / "cache").rglob("*"))
    (home.home / "projects" / "tiny" / "notes.txt").touch()
    (home.home / "projects" / "tiny" / "notes.txt").chmod(0o666)  # a file of the user's own
    assert touched_by_others(home.home) == [f"write:{home.home}/projects/tiny/notes.txt"]


async def answers_of(app: Starlette) -> dict[tuple[str, str], int]:
    """The status of each route, asked from this machine without a secret."""
    values = defaultdict(lambda: "1", name="tiny", page="card", action="retrain")
    routes = [route for route in app.routes if isinstance(route, Route) and route.path not in OPEN]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:4300") as client:
        return {
            (method, route.path): (await client.request(method, route.path.format_map(values))).status_code
            for route in routes
            for method in route.methods or ()
        }


def test_no_page_of_the_dashboard_answers_without_its_token(workspace: Workspace, make_project):
    make_project("tiny")
    answers = asyncio.run(answers_of(application(workspace, "127.0.0.1")))
    assert len(answers) > 8
    assert set(answers.values()) == {401}
