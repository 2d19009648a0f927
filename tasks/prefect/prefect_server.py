"""The workspace's own Prefect server: started once, shared by all runs, ended after an idle time.

The server's process is this module run with `-m`. Each process that needs the server holds a lease, a file with its
process id. The server ends when no living process has held a lease for IDLE_S seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import StoreError
from models.files import write_json, write_text
from models.launch import launched
from tasks.host import processes, server_access, stores
from tasks.host.garbage import collected_aside
from tasks.host.ports import listening
from tasks.host.workspace import Workspace
from tasks.prefect.flow_runs import ask

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp, Receive, Scope, Send

IDLE_S = float(os.environ.get("LOOPLINE_SERVER_IDLE_S", "600"))
START_TIMEOUT_S = 90.0
POLL_S = 0.1
ANSWER_S = 5.0
OWNER_START_S = 10.0
OWNER_POLL_S = 1.0
OWNER_LOCK = "owner.lock"
TURN_S = 1.0  # a process that checks whether the server lives may hold its lock for an instant
END_S = 10.0
GUARD_POLL_S = 1.0

# Prefect writes all its block types into a new database: half of such a server's start-up cost beyond its imports
# (3.2 of 10 CPU-s, prefect 3.8.8). Only the platform needs the catalogue in the UI; a block type that a flow saves is
# written when it is saved. Unless told not to, it imports all collections to find out whether the types have changed.
WITHOUT_CATALOGUE = {
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
}

# What Prefect does with deployments, work pools and automations, of which there are none before the first start of the
# platform, whose server takes this one's place. A loop costs a server 2.3 CPU-s with them, 1.5 without (prefect 3.8.8).
WITHOUT_DEPLOYMENTS = {
    f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false"
    for service in ("FOREMAN", "LATE_RUNS", "SCHEDULER", "TRIGGERS")
}


class PrefectServer:
    """The Prefect server of a workspace, or the server at PREFECT_API_URL."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._folder = workspace.state / "prefect"

    def start(self) -> None:
        """Start the server in the background unless it runs; return at once."""
        if self.url() is None:
            server_access.make_secret(self._workspace)
            with (self._folder / "server.log").open("ab") as log:
                server = subprocess.Popen(
                    [sys.executable, *launched(__name__, str(self._workspace.root))],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd=Path(__file__).parents[2],
                    env={**processes.unmarked(os.environ), **stores.environment(self._workspace)},
                )
                server.returncode = 0  # it outlives this process: suppress Python's warning

    def address(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Return the address of the starting server, which is known once it has chosen a port.

        Raises:
            StoreError: No server started in time; names its log.
        """
        deadline = time.monotonic() + timeout_s
        asked_at = time.monotonic()
        while time.monotonic() < deadline:
            url = self.url()
            if url:
                return url
            if time.monotonic() - asked_at > OWNER_START_S:
                self.start()  # the previous server may have ended meanwhile
                asked_at = time.monotonic()
            time.sleep(POLL_S)
        raise StoreError(f"Prefect's server did not start within {timeout_s:g} s: see {self._folder / 'server.log'}")

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Return the API's address, once the server answers.

        Raises:
            StoreError: The server did not start in time; names its log.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            url = self.address(timeout_s)
            if is_healthy(url):
                return url
            time.sleep(POLL_S)
        raise StoreError(f"Prefect's server did not answer within {timeout_s:g} s: see {self._folder / 'server.log'}")

    def url(self) -> str | None:
        """Return the address of the running server, or None; the server may not answer yet."""
        state = self.state()
        return f"http://127.0.0.1:{state['port']}/api" if state else None

    def api(self) -> str | None:
        """Return the address of the API to use: PREFECT_API_URL, else that of the workspace's running server."""
        return os.environ.get("PREFECT_API_URL", "").rstrip("/") or self.url()

    def state(self) -> dict[str, Any] | None:
        """Return the state of the living server: its port and its process (`owner`); None if there is none.

        A server holds its lock while it lives, so the lock shows whether one of another host or host name lives.
        """
        try:
            state: dict[str, Any] = json.loads((self._folder / "server.json").read_text())
        except (OSError, ValueError):
            return None
        return state if processes.is_alive(state["owner"], self._folder / OWNER_LOCK) else None

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """Hold a lease: the server stays up while this process is in the block and alive."""
        leases = self._folder / "leases"
        leases.mkdir(parents=True, exist_ok=True)
        path = leases / f"{uuid.uuid4().hex}.json"
        write_json(path, processes.identity())
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Keep the server running while in the block; restart it at the same address if it dies; yield the address.

        Prefect's client retries a request for about a minute, so a running flow survives the restart.

        Raises:
            StoreError: The server did not start; names its log.
        """
        with self.lease():
            self.start()
            address, over = self.address(), threading.Event()
            threading.Thread(target=self._guard, args=(address, over), name="loopline-prefect", daemon=True).start()
            try:
                yield address
            finally:
                over.set()

    def _guard(self, address: str, over: threading.Event) -> None:
        while not over.wait(GUARD_POLL_S):
            if self.url() is None and not is_healthy(address):
                with contextlib.suppress(StoreError, OSError):
                    self.start()
                    self.address()

    def is_leased(self) -> bool:
        """Return whether a living process holds a lease."""
        return any(_holds(path) for path in (self._folder / "leases").glob("*.json"))

    def want_port(self, port: int) -> None:
        """Choose the port of the next server; it is used if it is free then."""
        write_text(self._folder / "port", str(port))

    def stop(self) -> bool:
        """End the server; return whether it ran. A server of another host is not ended."""
        state = self.state()
        if state is None or not processes.is_here(state["owner"]):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(state["owner"]["pid"]), signal.SIGTERM)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and processes.is_alive(state["owner"]):
            time.sleep(POLL_S)
        return True


def is_healthy(url: str) -> bool:
    """Return whether a Prefect API at this address is healthy."""
    return answers(f"{url}/health", ANSWER_S)


def is_working(api: str) -> bool:
    """Return whether a Prefect API answers what only its database knows: `/health` says yes while all else hangs.

    One that refuses the account works: whoever uses it is told so.
    """
    try:
        ask(api, "flows/filter", {"limit": 1}, timeout_s=ANSWER_S)
    except StoreError as error:
        return getattr(error.__cause__, "code", None) in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    return True


def answers(url: str, timeout_s: float = ANSWER_S) -> bool:
    """Return whether an address answers with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310 - our own or the user's server
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _serve(workspace: Workspace, for_good: bool) -> None:
    """Serve until no process needs the server; the platform's server waits for the lock and serves for good."""
    import filelock

    folder = workspace.state / "prefect"
    folder.mkdir(parents=True, exist_ok=True)
    is_alone = not for_good and not workspace.platform.exists()
    lock = filelock.FileLock(folder / OWNER_LOCK, timeout=-1 if for_good else TURN_S)
    lease = PrefectServer(workspace).lease() if for_good else contextlib.nullcontext()
    with lease, contextlib.suppress(filelock.Timeout), lock:  # no lock: another server was first
        listener = _listener(folder / "port")
        port = listener.getsockname()[1]
        os.environ |= {
            **({} if for_good else WITHOUT_CATALOGUE),
            **(WITHOUT_DEPLOYMENTS if is_alone else {}),
            **os.environ,
            "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api",
            "PREFECT_LOGGING_LEVEL": "WARNING",
            **server_access.server_environment(workspace, port),
        }
        write_json(folder / "server.json", {"port": port, "owner": processes.identity()})
        _run(folder / "leases", listener, workspace.platform / "supervisor.json" if is_alone else None)


class OwnPages:
    """Refuses requests of other sites' pages, also those with the secret; programs send no Origin.

    Args:
        app: The server's app.
        port: The server's port.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app, self._origins = app, {"", *server_access.origins(port)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it; a preflight is answered by Prefect itself, by the same origins."""
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse
        from starlette.websockets import WebSocketClose

        app = self._app
        is_asked = scope["type"] != "lifespan" and scope.get("method") != "OPTIONS"
        if is_asked and Headers(scope=scope).get("origin", "") not in self._origins:
            refusal = PlainTextResponse("a page of another site sent the request", 403)
            app = refusal if scope["type"] == "http" else WebSocketClose()
        await app(scope, receive, send)


@collected_aside()  # also amid the imports: with a new database the start takes 5.4 instead of 6.6 CPU-s
def _run(leases: Path, listener: socket.socket, successor: Path | None) -> None:
    """Run Prefect's server on loopback; unlike `prefect server start`, it does not accept every Host header."""
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import PREFECT_SERVER_API_KEEPALIVE_TIMEOUT, PREFECT_SERVER_LOGGING_LEVEL
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    # Outside the app: Prefect's automations call the app within the process, with their own Host name.
    config = uvicorn.Config(
        TrustedHostMiddleware(
            OwnPages(create_app(final=True), listener.getsockname()[1]), allowed_hosts=list(server_access.NAMES)
        ),
        timeout_keep_alive=PREFECT_SERVER_API_KEEPALIVE_TIMEOUT.value(),
        log_level=PREFECT_SERVER_LOGGING_LEVEL.value().lower(),
    )
    server = uvicorn.Server(config)
    threading.Thread(target=_end_in_time, args=(leases, server, successor), name="loopline-leases", daemon=True).start()
    server.run(sockets=[listener])  # after SIGTERM it ends the process by that signal


def _end_in_time(leases: Path, server: uvicorn.Server, successor: Path | None = None) -> None:
    """End the server when no process needs it, and the process if the server's end takes longer than END_S."""
    _watch(leases, server, successor)
    server.should_exit = True
    time.sleep(END_S)
    os._exit(1)


def _watch(leases: Path, server: uvicorn.Server, successor: Path | None = None) -> None:
    """Return once nobody needs the server, or once the file of a platform appears whose server waits to succeed it."""
    needed = time.monotonic()
    while time.monotonic() - needed < IDLE_S and not server.should_exit:
        time.sleep(OWNER_POLL_S)
        if not leases.parent.exists():  # the workspace was deleted: no process can find this server any more
            return
        if successor and successor.exists():  # a running loop repeats its requests meanwhile
            return
        if any(_holds(path) for path in leases.glob("*.json")):
            needed = time.monotonic()


def _holds(lease: Path) -> bool:
    """Return whether the process of a lease lives on this host: other hosts cannot use the server on loopback."""
    try:
        process = json.loads(lease.read_text())
    except (OSError, ValueError):
        return False
    if processes.is_here(process) and not processes.is_alive(process):
        lease.unlink(missing_ok=True)
    return processes.is_alive_here(process)


def _listener(memory: Path) -> socket.socket:
    """Listen at the last used port if it is free, so that bookmarks stay valid; else at any free port.

    The server listens before it says where: another workspace's server is never taken for it.
    """
    port_before = int(memory.read_text()) if memory.exists() and memory.read_text().strip().isdigit() else 0
    listener = listening(port_before, or_any=True)
    memory.write_text(str(listener.getsockname()[1]))
    return listener


if __name__ == "__main__":
    _serve(Workspace(Path(sys.argv[1])), for_good="--for-good" in sys.argv)
