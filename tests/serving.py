"""A live server of champions: `python -m tasks.serve` on a free port, over a cache and a registry that need no MLflow.

crown(workspace, "tiny", "1")                      a version in the cache, and the registry's alias on it
with live_server(workspace, "tiny") as server:     or the fixture `serve`, for the test's own workspace
    server.post("/invocations", {"dataframe_records": [{"x": 1, "c": "u"}]}).json
    crown(workspace, "tiny", "2")                  a promotion, as the follower sees it
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from models.files import read_json, sha256, write_json
from models.serving.registry import FILES
from models.serving.registry_comparison import Projection
from models.serving.releases import PROMOTION, ReleasePlan
from tasks.host import database, ports, stores
from tasks.host.http_guard import SERVE_TOKEN, token_path
from tasks.host.workspace import Workspace
from tasks.state import champion_moves, registered_models, versions
from tasks.state.versions import StoredVersion
from tests import warm
from tests.environment import OURS, QUIET
from tests.served_models import write_served

ROOT = Path(__file__).parents[1]
POLL_S = 0.01
LONGEST_S = 30.0


@dataclass(frozen=True)
class Reply:
    """What a server answered; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def ok(self) -> Reply:
        assert self.status == 200, f"{self.status}: {self.body[:2000]!r}"
        return self


@dataclass
class LiveServer:
    """A server under way; what it prints goes to `log`."""

    process: warm.Started
    port: int
    log: Path
    headers: dict[str, str] = field(default_factory=dict)
    token: Path | None = None
    """The file of its token, which goes with labels."""
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """One request on a connection of its own; a body that is no bytes is sent as JSON."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if body is None or isinstance(body, bytes) else {"Content-Type": "application/json"}
        with contextlib.closing(self._connection()) as connection:
            own = self.bearer() if path.endswith("/feedback") else {}
            connection.request(method, path, content, {**kind, **own, **self.headers, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())

    def bearer(self) -> dict[str, str]:
        """The header with the workspace's token; none where the server is of no workspace, or has made none."""
        known = self.token is not None and self.token.exists()
        return {"Authorization": f"Bearer {self.token.read_text().strip()}"} if known and self.token else {}

    def _connection(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_S)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=LONGEST_S, context=self.tls)

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.ask("POST", path, body, headers)

    def workers(self) -> list[psutil.Process]:
        """The processes that answer: the server itself where it has no others."""
        me, spawned = psutil.Process(self.process.pid), []
        for one in me.children():
            with contextlib.suppress(psutil.Error):  # one that was killed and is not yet waited for
                spawned += [one] if "spawn_main" in " ".join(one.cmdline()) else []
        return spawned or [me]

    def wait_until(self, holds: Any, timeout_s: float = LONGEST_S) -> None:
        """Until `holds()` is true; a connection that is refused counts as no."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if holds():
                    return
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.printed[-6000:]}"
            time.sleep(POLL_S)
        raise AssertionError(f"did not hold within {timeout_s:g} s:\n{self.printed[-6000:]}")

    def end(self, number: int = signal.SIGTERM, timeout_s: float = LONGEST_S) -> int:
        """Send the signal to the server alone, and see it end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


@contextlib.contextmanager
def live_server(
    workspace: Workspace,
    *projects: str,
    arguments: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-m", "tasks.serve"),
    ready: bool = True,
    tls: ssl.SSLContext | None = None,
    cold: bool = False,
    tracer: Sequence[str] = (),
    **environ: str,
) -> Iterator[LiveServer]:
    """A server over the workspace; at the end it and every process that it started are gone.

    Args:
        workspace: With versions in its cache; see `crown`.
        projects: Registered models.
        arguments: Further ones of the command line.
        program: What Python runs.
        ready: Wait until `/ping` says 200; else until the port is open.
        tls: How to ask a server of TLS.
        cold: Started as a user starts it, not forked from a process that has imported much more: for measurements.
        tracer: The first words of the command where it runs under a tracer, cold: see `tests/traced.py`.
        environ: Further variables of its environment.
    """
    port = ports.any_free([])
    log = workspace.root / f"server-{port}.log"
    command = [*program, str(workspace.root), *projects, "--port", str(port), *arguments]
    with log.open("wb") as printing:
        around = _environment(workspace, environ)
        if cold or tracer:
            process: warm.Started = warm.start_cold(command, around, ROOT, printing, tracer)
        else:
            process = warm.start_python(command, around, ROOT, printing)
    server = LiveServer(process, port, log, token=token_path(workspace, SERVE_TOKEN), tls=tls)
    try:
        server.wait_until(lambda: server.get("/ping").status == 200 or not ready)
        yield server
    finally:
        _end(process)


def crown(workspace: Workspace, name: str, number: str = "1", task: str = "binary", alias: str = "champion") -> Path:
    """Put a version into the cache where it is not there, and the registry's alias on it; gives its folder."""
    place = workspace.cache / "models" / name
    folder = place / number
    if not (folder / "model.onnx").exists():
        write_served(folder, task)
    hashes = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    write_json(place / f"{number}.json", hashes)
    write_json(place / "aliases.json", {**read_json(place / "aliases.json"), alias: number})
    register(workspace, name, number, {FILES: json.dumps(hashes)}, folder, alias)
    return folder


def register(
    workspace: Workspace, name: str, number: str, tags: Mapping[str, str], source: Path, alias: str | None
) -> None:
    """Record a version and the move that its alias means."""
    with database.writing(workspace.state) as connection:
        earlier = next(iter(versions.read(connection, name, version=number)), None)
        tags = {**(earlier.tags if earlier else {}), **tags}
        versions.save(connection, name, StoredVersion(number, "", str(source), tags, time.time()))
        newest = next(iter(champion_moves.read(connection, name, limit=1)), None)
        if alias == "champion":
            champion_moves.record(
                connection,
                name,
                newest.number if newest else 0,
                action="promote",
                before=newest.after if newest else None,
                after=number,
                plan=ReleasePlan.of_tags(tags),
                promotion=tags.get(PROMOTION, ""),
            )
        elif alias == "challenger":
            registered_models.save(connection, name, Projection(challenger=number))


def _environment(workspace: Workspace, further: Mapping[str, str]) -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    uri = f"sqlite:///{workspace.state / 'mlflow' / 'mlflow.db'}"
    return {**own, **QUIET, **stores.QUIET, "MLFLOW_TRACKING_URI": uri, "LOOPLINE_HOME": str(workspace.root), **further}


def _end(process: warm.Started) -> None:
    """End a server and whatever it started, each by its pid."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LONGEST_S)
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.kill()
    process.wait()
