"""Rendezvous of several machines: the server through which nodes join a job, and the client on a node.

The machine that runs the loop leads: it has the rendezvous server, writes the results, and reports. Another machine
gets the job as plain data if it knows the token (HMAC, by `multiprocessing.connection`). The messages after that are
not encrypted, and neither is the ranks' own traffic: a private network is assumed. Project, data and checkpoints must
be in a folder that all machines share under the same path.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge, wait
from pathlib import Path
from types import TracebackType
from typing import Any

from models.errors import StoreError, UsageError
from models.files import write_text
from models.training.job import Rendezvous, TrainingJob
from tasks.host.http_guard import NODES_TOKEN, checked_token, environment_token

ENDPOINT = "LOOPLINE_ENDPOINT"
_PROOF = ".shared"
_RETRY_S = 0.5
# Time that a node whose ranks have ended waits for the message that the job is done.
_FAREWELL_S = 5.0


def endpoint(text: str | None = None) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, by default of LOOPLINE_ENDPOINT, else loopback, closed to other machines.

    Raises:
        UsageError: The text has another format.
    """
    text = os.environ.get(ENDPOINT, "127.0.0.1:0") if text is None else text
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{text!r}: expected HOST:PORT, such as 10.0.0.1:29400")
    return host, int(port)


def interface(address: str) -> str:
    """Return the name of the network interface with this address, for the ranks' traffic.

    Raises:
        UsageError: No interface has the address.
    """
    if address in ("127.0.0.1", "localhost"):
        return "lo" if os.name == "posix" and Path("/sys/class/net/lo").exists() else "lo0"
    import psutil

    numbers = {info[4][0] for info in socket.getaddrinfo(address, None, socket.AF_INET)}
    for name, entries in psutil.net_if_addrs().items():
        if numbers & {entry.address for entry in entries}:
            return name
    raise UsageError(f"{ENDPOINT}: no network interface of this machine has the address {address}: name one that has")


class RendezvousServer:
    """Lets other machines join a job while it trains.

    Attributes:
        heard: Receives ("error", name, text, traceback) for errors of other machines' ranks.
    """

    def __init__(self, job: TrainingJob, say: Callable[[str], None]) -> None:
        self._job = job
        self.host, port = endpoint()
        own = environment_token(NODES_TOKEN)
        token = own or secrets.token_urlsafe(16)
        self._key = token.encode()
        try:
            self._listener = Listener((self.host, port), backlog=16)
        except OSError as error:
            raise UsageError(f"{ENDPOINT}: cannot listen at {self.host}:{port} ({error}): name another port") from error
        self._proof = job.folder / _PROOF
        write_text(self._proof, secrets.token_hex())
        self._meeting = Rendezvous()
        self._nodes: list[Connection] = []
        self.heard, self._address_pipe = multiprocessing.Pipe(duplex=False)
        self._lock = threading.Lock()
        threading.Thread(target=self._admit, daemon=True).start()
        shown = "" if own else f"{NODES_TOKEN}={token} "
        say(
            f"{job.train.nodes} node(s) may train this: on each other machine run "
            f"`{shown}loopline join {self.host}:{self._listener.address[1]}`"
        )

    def __enter__(self) -> RendezvousServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        with self._lock:
            for node in self._nodes:
                with contextlib.suppress(OSError):
                    node.send_bytes(json.dumps({"done": True}).encode())
                    node.close()
        self._proof.unlink(missing_ok=True)

    def open(self) -> Rendezvous:
        """Return a new rendezvous address for the next start of the ranks; nodes that join from now on get it."""
        with socket.create_server((self.host, 0)) as free:
            port = free.getsockname()[1]
        self._meeting = Rendezvous(host=self.host, port=port, address=self.host, is_host=True)
        return self._meeting

    def _admit(self) -> None:
        while True:
            try:
                node = self._listener.accept()
            except (OSError, EOFError):
                if self._listener_is_closed():
                    return
                continue
            # In a thread of its own: a silent client must not block the others.
            threading.Thread(target=self._welcome, args=(node,), daemon=True).start()

    def _welcome(self, node: Connection) -> None:
        """Send the job to a node that knows the token, then receive the errors of its ranks."""
        with contextlib.suppress(OSError, EOFError, multiprocessing.AuthenticationError), node:
            deliver_challenge(node, self._key)
            answer_challenge(node, self._key)
            message = {
                "job": self._job.model_dump(mode="json"),
                "host": self._meeting.host,
                "port": self._meeting.port,
                "versions": versions(),
                "proof": self._proof.read_text(),
            }
            node.send_bytes(json.dumps(message).encode())
            with self._lock:
                self._nodes.append(node)
            self._hear(node)

    def _listener_is_closed(self) -> bool:
        return self._listener._listener is None  # type: ignore[attr-defined]

    def _hear(self, node: Connection) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError):
            while True:
                name, text, trace = json.loads(node.recv_bytes())
                with self._lock:
                    self._address_pipe.send(("error", name, text, trace))


def join(text: str, token: str, wait_s: float, say: Callable[[str], None]) -> None:
    """Join the job at an endpoint until it is done; connect again whenever the ranks on this machine have ended.

    Args:
        text: HOST:PORT, as the leading machine shows it.
        token: The token, as the leading machine shows it.
        wait_s: Time to wait until the endpoint accepts the connection, in seconds.
        say: Receives progress messages.

    Raises:
        UsageError: The token is wrong or too short, or this machine has other code or does not share the folder.
        StoreError: The endpoint does not accept the connection in time.
    """
    from tasks.ranks.rank_pool import RankPool

    where = endpoint(text)
    checked_token(token, f"--token or {NODES_TOKEN}")
    while True:
        host = _knock(where, token, wait_s)
        address = _own_address(host)
        try:
            message = json.loads(host.recv_bytes())
        except (EOFError, OSError):
            continue  # the training has just ended; another one may begin
        job = TrainingJob.model_validate_json(json.dumps(message["job"]), strict=False)
        _check(message, job)
        say(f"training {job.folder.name} with {job.train.ranks} rank(s) from {address}")
        meeting = Rendezvous(host=message["host"], port=message["port"], address=address, is_host=False)
        with RankPool(address=address) as pool, contextlib.closing(host):
            if pool.serve(job, meeting, host):
                say("done")
                return
        say("the ranks here have ended before the training: asking anew")


def attend(ranks: Iterable[Connection], host: Connection) -> bool:
    """Forward errors of ranks to the host until it reports the end (return true) or the agent here ends (false)."""
    agent, *others = ranks
    open_ones = [agent, *others, host]
    deadline = None
    while deadline is None or time.monotonic() < deadline:
        for ready in wait(open_ones, _FAREWELL_S if deadline else None):
            assert isinstance(ready, Connection)
            try:
                message: Any = json.loads(ready.recv_bytes()) if ready is host else ready.recv()
            except (EOFError, ConnectionError):
                if ready is host:
                    return True  # the loop has ended or was stopped: its machine accepts no nodes any more
                open_ones.remove(ready)
                deadline = deadline or (time.monotonic() + _FAREWELL_S if ready is agent else None)
                continue
            match message:
                case {"done": True}:
                    return True
                case ("error", name, text, trace):
                    host.send_bytes(json.dumps([name, text, trace]).encode())
    return False


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all machines of a job: torch, and Loopline's code."""
    models = Path(__file__).resolve().parents[2] / "models"
    digest = hashlib.sha256()
    for path in sorted(models.rglob("*.py")):
        digest.update(path.read_bytes())
    return {"torch": importlib.metadata.version("torch"), "code": digest.hexdigest()[:16]}


def _knock(where: tuple[str, int], token: str, wait_s: float) -> Connection:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return Client(where, authkey=token.encode())
        except multiprocessing.AuthenticationError as error:
            raise UsageError(f"{where[0]}:{where[1]}: the token is another: see what the loop there shows") from error
        except (OSError, EOFError) as error:
            if time.monotonic() > deadline:
                raise StoreError(f"{where[0]}:{where[1]}: nobody answered after {wait_s:g} s ({error})") from error
            time.sleep(_RETRY_S)


def _own_address(connection: Connection) -> str:
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        return str(sock.getsockname()[0])


def _check(message: dict[str, Any], job: TrainingJob) -> None:
    expected = message["versions"]
    differs = [
        f"{name}: got {got}, expected {expected[name]}" for name, got in versions().items() if got != expected[name]
    ]
    if differs:
        raise UsageError(f"this machine differs from the leading one ({'; '.join(differs)}): install the same")
    proof = job.folder / _PROOF
    if not proof.exists() or proof.read_text() != message["proof"]:
        raise UsageError(f"{job.folder}: not shared with the machine that leads: mount the workspace at the same path")
    for path in (job.prepared, *job.tensors.values()):
        if not path.exists():
            raise UsageError(f"{path}: not here: the prepared data must be shared under the same path")
