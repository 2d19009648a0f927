"""What plain MLflow and DVC do where several processes meet, for the page `docs/comparison.md`.

    python -m tests.bench.plain_tools

Each line is tried anew with the installed versions, in a temporary folder, without Loopline.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

PROCESSES = 6
MIGRATION = ("alembic", "_alembic_tmp_")
FIRST_USE = "import mlflow; mlflow.set_tracking_uri({uri!r}); mlflow.set_experiment('e')"
SETUP = """
import mlflow
mlflow.set_tracking_uri({uri!r})
client = mlflow.MlflowClient()
client.create_registered_model('m')
for _ in range(3):
    client.create_model_version('m', 'somewhere')
client.set_registered_model_alias('m', 'champion', '1')
"""
RACE = """
seen = [mlflow.MlflowClient().get_model_version_by_alias('m', 'champion').version for _ in range(2)]
for version in ('2', '3'):  # both looked, saw version 1, and now move the alias
    client.set_registered_model_alias('m', 'champion', version)
print(seen, client.get_model_version_by_alias('m', 'champion').version)
"""
KILLED = """
import os, signal, mlflow
mlflow.set_tracking_uri({uri!r})
mlflow.start_run(run_name='killed')
os.kill(os.getpid(), signal.{name})
"""


def together(commands: list[list[str]], folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """Start commands at once, and return how each ended."""
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    running = [
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command in commands
    ]
    texts = [one.communicate(timeout=300)[0] for one in running]
    return [
        subprocess.CompletedProcess(one.args, one.returncode, text) for one, text in zip(running, texts, strict=True)
    ]


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    return together([[sys.executable, "-c", code]], folder)[0]


def first_use(folder: Path) -> str:
    """Six processes touch one new SQLite store of MLflow."""
    code = FIRST_USE.format(uri=f"sqlite:///{folder}/first.db")
    ended = together([[sys.executable, "-c", code]] * PROCESSES, folder)
    migrating = sum(any(word in one.stdout for word in MIGRATION) for one in ended if one.returncode)
    return f"{sum(one.returncode == 0 for one in ended)} of {PROCESSES} succeed, {migrating} fail in the migration"


def killed_runs(folder: Path) -> str:
    """A run's process ends by a signal."""
    uri = f"sqlite:///{folder}/killed.db"
    for name in ("SIGTERM", "SIGKILL"):
        python(KILLED.format(uri=uri, name=name), folder)
    code = f"import mlflow; mlflow.set_tracking_uri({uri!r}); print(list(mlflow.search_runs(['0']).status))"
    return python(code, folder).stdout.strip().splitlines()[-1]


def racing_promotions(folder: Path) -> str:
    """Two promotions that both saw version 1."""
    done = python(SETUP.format(uri=f"sqlite:///{folder}/race.db") + RACE, folder)
    return f"versions seen and champion at the end: {done.stdout.strip().splitlines()[-1]}"


def parallel_adds(folder: Path) -> str:
    """Six processes add a folder each to one DVC repository."""
    repository = folder / "repository"
    repository.mkdir()
    program = str(Path(sys.executable).with_name("dvc"))
    together([[program, "init", "--no-scm", "-q"]], repository)
    for number in range(PROCESSES):
        (repository / f"d{number}").mkdir()
        (repository / f"d{number}" / "file").write_bytes(os.urandom(1 << 22))
    ended = together([[program, "add", f"d{number}"] for number in range(PROCESSES)], repository)
    locked = sum("acquire lock" in one.stdout for one in ended)
    return f"{sum(one.returncode == 0 for one in ended)} of {PROCESSES} succeed, {locked} say that the lock is taken"


def main() -> None:
    """Try each, and print what happened."""
    console = Console()
    console.print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("mlflow", "dvc")))
    for trial in (first_use, killed_runs, racing_promotions, parallel_adds):
        with tempfile.TemporaryDirectory() as place:
            console.print(f"{trial.__doc__} {trial(Path(place))}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
