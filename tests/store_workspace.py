"""`python -m tests.store_workspace COMMIT` stores what it writes, for `tests/integration/test_older_workspace.py`.

That commit's own commands run three loops, promote two versions and try the third as a canary, in a new workspace.
Kept are its state database, without the outbox and without all step records but the registration's, and what MLflow's
client shows of its registered model. The machine's names are replaced.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from models.files import write_text
from tests.conftest import ROWS, SPEC

STORED = Path(__file__).parent / "integration" / "older_workspace"
RUN = ("run", "tiny", "-s", "search.trials=0", "-s", "train.epochs=2", "-s")
COMMANDS = (
    *((*RUN, f"train.seed={seed}") for seed in (1, 2, 3)),
    ("promote", "tiny", "1", "--reason", "the first model"),
    ("promote", "tiny", "2", "--reason", "a better one"),
    ("release", "tiny", "--canary", "0.1", "--version", "3"),
    ("down",),
)
SHOW = """
import json
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.mlflow.client import client
stores.configure(Workspace.find())
model = client().get_registered_model("tiny")
versions = {str(version.version): version.tags for version in client().search_model_versions("name = 'tiny'")}
aliases = {alias: str(number) for alias, number in model.aliases.items()}
print(json.dumps({"aliases": aliases, "tags": model.tags, "versions": versions}, indent=2, sort_keys=True))
"""


def store(commit: str) -> Path:
    """Write the folder of a commit, and return it."""
    with tempfile.TemporaryDirectory() as folder:
        program, home = Path(folder, "program"), Path(folder, "home")
        program.mkdir()
        archive = subprocess.run(["git", "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(program)], input=archive, check=True)
        project = home / "projects" / "tiny"
        project.mkdir(parents=True)
        (project / "project.yaml").write_text(SPEC.format(name="tiny"))
        (project / "data.csv").write_text(ROWS)
        environment = {**os.environ, "LOOPLINE_HOME": str(home)}

        def said(*arguments: str) -> str:
            command = [sys.executable, *arguments]
            done = subprocess.run(command, cwd=home, env=environment, stdout=subprocess.PIPE, text=True, check=False)
            assert done.returncode in (0, 3), command  # 3: a loop's model was not promoted
            return done.stdout

        for command in COMMANDS:
            said("-P", str(program / "models" / "launch.py"), "flows.cli", *command)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        names = [(str(home), "/srv/lab"), (socket.gethostname(), "lab"), (boot, "0a0b0c0d")]
        texts = {"state.sql": _dump(home / ".loopline" / "state.db"), "mlflow.json": said("-c", SHOW)}
        for file, content in texts.items():
            for name, other in names:
                content = content.replace(name, other)
            write_text(STORED / commit[:8] / file, content)
    return STORED / commit[:8]


def _dump(file: Path) -> str:
    with closing(sqlite3.connect(file)) as written, closing(sqlite3.connect(":memory:")) as kept:
        written.backup(kept)
        with kept:
            kept.execute("delete from outbox")
            kept.execute("delete from step_records where step != 'register'")
        return "\n".join(kept.iterdump()) + "\n"


if __name__ == "__main__":
    print(store(sys.argv[1]))
