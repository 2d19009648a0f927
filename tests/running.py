"""The real command line in a workspace of a test's own, and what all the stores say after it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import filelock
import psutil
import pytest
from sqlalchemy import Connection, select

from models.errors import StoreError
from tasks.host import database, processes, server_access, stores
from tasks.host.processes import OWNER
from tasks.host.store_addresses import STATE_URL, TRACKING_URI
from tasks.host.tables import outbox, step_records
from tasks.host.workspace import Workspace
from tasks.loop.history import last_loop
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import PrefectServer
from tests import warm

ROOT = Path(__file__).parents[1]
PROGRAM = Path(sys.executable).with_name("loopline")
PENGUINS = ROOT / "projects" / "penguins" / "penguins.csv"
POLL_S = 0.02
LONGEST_PAUSE_S = 0.6
LONGEST_S = 300.0
EMPTY_PREFECT = "empty.db"
PROMISED_S = 3.0  # an orphan may outlive a kill by this much


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def ok(self) -> Ended:
        assert self.code == 0, f"exit code {self.code}\n{self.out[-3000:]}\n{self.err[-6000:]}"
        return self


@dataclass
class Running:
    """A command under way; what it prints goes to files, so that it never waits for a reader."""

    process: warm.Started
    out: Path
    err: Path
    _seen: int = 0

    def wait_for(self, text: str, timeout_s: float = LONGEST_S) -> None:
        """Until a line of standard error begins with `text`; a command that ends before fails the test."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            printed = self.err.read_text(errors="replace")
            if any(line.startswith(text) for line in printed.splitlines()):
                return
            assert not ended, f"ended with {self.process.returncode} before {text!r}:\n{printed[-6000:]}"
            time.sleep(POLL_S)
        raise AssertionError(f"no line {text!r} within {timeout_s:g} s:\n{self.err.read_text()[-6000:]}")

    def wait_until(self, holds: Any, timeout_s: float = LONGEST_S) -> None:
        """Until `holds()` is true; a command that ends before fails the test."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if holds():
                return
            assert self.process.poll() is None, f"ended too early:\n{self.err.read_text()[-6000:]}"
            time.sleep(POLL_S)
        raise AssertionError(f"did not hold within {timeout_s:g} s:\n{self.err.read_text()[-6000:]}")

    def kill(self, number: int = signal.SIGKILL) -> Ended:
        """Send the signal to the command alone, which may have paused, and see it end."""
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        return self.ended()

    def ended(self, timeout_s: float = LONGEST_S) -> Ended:
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still running after {timeout_s:g} s:\n{self.err.read_text()[-6000:]}") from None
        return Ended(code, self.out.read_text(errors="replace"), self.err.read_text(errors="replace"))

    def ranks(self) -> list[psutil.Process]:
        """The processes that train, deepest last: descendants of the nursery that have no children."""
        fork_server = self.fork_server()
        with contextlib.suppress(psutil.Error):
            below = fork_server.children(recursive=True) if fork_server else []
            return [one for one in below if is_there(one) and not one.children()]
        return []

    def fork_server(self) -> psutil.Process | None:
        """The warmed process that starts ranks."""
        with contextlib.suppress(psutil.Error):
            for one in psutil.Process(self.process.pid).children():
                if one.name() == warm.RANKS_NAME or "models.distributed.forkserver" in " ".join(one.cmdline()):
                    return one
        return None


@dataclass
class Loopline:
    """A workspace and the `loopline` program in it."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    @property
    def environment(self) -> dict[str, str]:
        path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated environment
        return {
            **os.environ, "PATH": path, "LOOPLINE_HOME": str(self.home), "LOOPLINE_SERVER_IDLE_S": "30", **self.environ
        }  # fmt: skip

    def begin(self, store: Path, prefect: Path) -> None:
        """Make the empty workspace, with copies of stores that are initialised: making one takes seconds."""
        shutil.copytree(store, self.home / ".loopline" / "mlflow")
        begin_prefect(self.home, prefect)

    def start(self, *arguments: str, cwd: Path | None = None, **environ: str) -> Running:
        return self._start(PROGRAM, arguments, {**self.environment, **environ}, cwd or self.home)

    def _start(self, program: Path | str, arguments: tuple[str, ...], environ: dict[str, str], cwd: Path) -> Running:
        logs = self.home.with_name(f"{self.home.name}-logs")
        logs.mkdir(parents=True, exist_ok=True)
        self._count += 1
        out, err = logs / f"{self._count:03}.out", logs / f"{self._count:03}.err"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = _begin(program, arguments, environ, cwd, to_out, to_err)
        return Running(process, out, err)

    def __call__(self, *arguments: str, cwd: Path | None = None, timeout_s: float = LONGEST_S, **environ: str) -> Ended:
        return self.start(*arguments, cwd=cwd, **environ).ended(timeout_s)

    def project(self, name: str, spec: str, files: dict[str, str | bytes] | None = None) -> Path:
        """Write a project: its spec, and files beside it. The penguins' table is always there."""
        folder = self.home / "projects" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "project.yaml").write_text(f"name: {name}\n{spec}")
        if not (folder / PENGUINS.name).exists():
            shutil.copyfile(PENGUINS, folder / PENGUINS.name)
        for file, content in (files or {}).items():
            (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    def state(self, name: str) -> Path:
        return self.home / ".loopline" / "projects" / name

    def records(self, name: str) -> dict[str, dict[str, Any]]:
        """Every record of a project by `step/key`."""
        rows = select(step_records.c.content).where(step_records.c.project == name).order_by(step_records.c.number)
        with self._state_database() as connection:
            return {f"{record['step']}/{record['key']}": record for record in connection.scalars(rows)}

    def outbox(self, name: str) -> list[dict[str, Any]]:
        """Every line that the loops of a project have written for MLflow."""
        rows = select(outbox.c.content).where(outbox.c.project == name).order_by(outbox.c.number)
        with self._state_database() as connection:
            return list(connection.scalars(rows))

    @contextlib.contextmanager
    def _state_url(self) -> Iterator[None]:
        """Have this process use the workspace's state database."""
        url = {STATE_URL: self.environ[STATE_URL]} if STATE_URL in self.environ else {}
        with mock.patch.dict(os.environ, url):
            yield

    @contextlib.contextmanager
    def _state_database(self) -> Iterator[Connection]:
        with self._state_url(), database.reading(self.home / ".loopline") as connection:
            yield connection

    def record(self, name: str, step: str) -> dict[str, Any]:
        """The latest record of a step."""
        return [record for record in self.records(name).values() if record["step"] == step][-1]

    def book(self, name: str) -> dict[str, Any]:
        with self._state_url():
            loop = last_loop(self.state(name))
        assert loop is not None
        return asdict(loop)

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Ask the tracking store's database: Postgres if the environment names one, else the embedded file."""
        if TRACKING_URI in self.environ:
            import psycopg

            with psycopg.connect(self.environ[TRACKING_URI]) as connection:
                return connection.execute(sql.replace("?", "%s").encode(), [str(value) for value in values]).fetchall()
        path = self.home / ".loopline" / "mlflow" / "mlflow.db"
        if not path.exists():
            return []
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
            return connection.execute(sql, values).fetchall()

    def runs(self) -> dict[str, str]:
        """Name and status of every MLflow run."""
        return dict(self.query("select name, status from runs"))

    def versions(self, name: str) -> list[int]:
        return [row[0] for row in self.query("select version from model_versions where name = ? order by 1", name)]

    def aliases(self, name: str) -> dict[str, int]:
        return dict(self.query("select alias, version from registered_model_aliases where name = ?", name))

    def tags(self, name: str, version: int) -> dict[str, str]:
        sql = "select key, value from model_version_tags where name = ? and version = ?"
        return dict(self.query(sql, name, version))

    def tool(self, *command: str, cwd: Path | None = None) -> Ended:
        """One of the tools' own programs, in the environment that `loopline env` prints."""
        script = f'eval "$({PROGRAM} env)" && exec "$@"'
        done = subprocess.run(
            ["bash", "-c", script, "tool", str(PROGRAM.with_name(command[0])), *command[1:]],
            cwd=cwd or self.home,
            env={**self.environment, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def dvc(self, *arguments: str, cwd: Path | None = None) -> Ended:
        """DVC's program in that environment, without its cold start."""
        return self._forked_tool(warm.DVC, *arguments, cwd=cwd)

    def python(self, code: str) -> Ended:
        """Python code in that environment, without its imports."""
        return self._forked_tool("-c", code)

    def _forked_tool(self, program: str, *arguments: str, cwd: Path | None = None) -> Ended:
        environ = {**self.environment, **stores.environment(Workspace(self.home))}
        return self._start(program, arguments, environ, cwd or self.home).ended()

    def stop(self) -> None:
        """End the workspace's own Prefect server."""
        PrefectServer(Workspace(self.home)).stop()


def _begin(
    program: Path | str, arguments: tuple[str, ...], environ: dict[str, str], cwd: Path, out: BinaryIO, err: BinaryIO
) -> warm.Started:
    """The program in a process of its own: forked from the warm one, or started cold where only that will do."""
    with Path(os.devnull).open("rb") as nothing:
        if warm.may_share_imports(environ):
            return warm.server().start(program, arguments, environ, cwd, (nothing.fileno(), out.fileno(), err.fileno()))
        return subprocess.Popen([program, *arguments], stdin=nothing, stdout=out, stderr=err, env=environ, cwd=cwd)


def write_program(folder: Path) -> None:
    """Put a `loopline` into the folder that is forked from the warm parent, for what starts it by its name."""
    program = folder / PROGRAM.name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(warm.caller_of(PROGRAM, warm.server().address))} "$@"\n')
    program.chmod(0o755)


def begin_prefect(home: Path, empty: Path) -> None:
    """Give the workspace the database of a Prefect server that nobody has used: its migrations take 5 CPU-s."""
    folder = Workspace(home).state / "prefect"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(empty, folder / "prefect.db")


def _copy_database(source: Path, copy: Path) -> None:
    """Of a database in use, if it was not copied yet."""
    if not copy.exists():
        with contextlib.closing(sqlite3.connect(source)) as read, contextlib.closing(sqlite3.connect(copy)) as written:
            read.backup(written)


@contextlib.contextmanager
def prefect_server(home: Path) -> Iterator[str]:
    """A Prefect server that several workspaces, and all who name this home, share; gives its API's address.

    Its database is copied to EMPTY_PREFECT in `home` before anybody uses it. Whoever leaves last ends it.
    """
    workspace = Workspace(home)
    workspace.make()
    server = PrefectServer(workspace)
    os.environ["LOOPLINE_SERVER_IDLE_S"] = "20"  # should these tests be killed
    leaving = filelock.FileLock(home / "leaving.lock")
    with contextlib.ExitStack() as lease:
        with leaving:
            lease.enter_context(server.lease())
            server.start()
            address = server.wait()
            _copy_database(workspace.state / "prefect" / "prefect.db", home / EMPTY_PREFECT)
        server_access.use(workspace, address)
        del os.environ["PREFECT_API_URL"]  # who is to use it names it; its secret helps nowhere else
        try:
            yield address
        finally:
            with leaving:
                lease.close()
                if not list((workspace.state / "prefect" / "leases").glob("*.json")):
                    server.stop()


def eventually(found: Callable[[], Any], why: str = "it did not come about") -> Any:
    """What `found` gives once that is true; a server that does not answer in time is asked again.

    The pauses grow: a request costs Prefect's server 15 ms of CPU, which whatever is waited for lacks.
    """
    deadline, pause_s = time.monotonic() + LONGEST_S * 0.8, 0.1
    while True:
        with contextlib.suppress(StoreError):
            if value := found():
                return value
        assert time.monotonic() < deadline, why
        time.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, 1.3 * pause_s)


def flow_runs(api: str, name: str, home: Path | None = None) -> dict[str, str]:
    """Id and state of every Prefect flow run whose name begins so; of the own server of `home`, if it is given."""
    if home is not None:
        server_access.use(Workspace(home), api)
    runs = ask(api, "flow_runs/filter", {"flow_runs": {"name": {"like_": name}}, "limit": 200})
    return {run["id"]: run["state_type"] for run in runs}


def is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def leftovers(home: Path) -> list[str]:
    """Processes of a workspace that still live, its Prefect server apart, and those whose owner is dead."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ValueError):
            environ, line = process.environ(), " ".join(process.cmdline())
            ours = environ.get("LOOPLINE_HOME") == str(home) and "prefect" not in line
            ours |= process.name() == warm.RANKS_NAME and Path(process.cwd()).is_relative_to(home)
            mark = environ.get(OWNER)
            orphan = ours and mark and not processes.is_alive(json.loads(mark))
            if (ours or orphan) and is_there(process):
                found.append(f"{process.pid} {line[:200]}")
    return found


def assert_gone(home: Path) -> None:
    """No process of the workspace outlives a kill by more than is promised."""
    deadline = time.monotonic() + PROMISED_S
    while (left := leftovers(home)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, "\n".join(left)


def assert_unlocked(home: Path, name: str) -> None:
    for path in [home / ".loopline" / "projects" / name / "loop.lock", *(home / ".loopline" / "locks").glob("*.lock")]:
        if path.exists():
            with filelock.FileLock(path).acquire(timeout=0):
                pass


@contextlib.contextmanager
def mounted(place: Path, *arguments: str) -> Iterator[None]:
    """A mount for the block; skips where mounting is not allowed.

    It ends with this process, also by kill -9: pytest fails if it cannot remove the folders of an older run.
    """
    done = subprocess.run(["mount", *arguments, str(place)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this user may not mount: {done.stderr.strip()}")
    ends_with_us = ["setsid", "sh", "-c", 'read -r _; exec umount -l "$1"', "unmount", str(place)]
    unmount = subprocess.Popen(ends_with_us, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        unmount.communicate()
        assert unmount.returncode == 0, f"{place} stayed mounted"
