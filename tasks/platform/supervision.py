"""supervisord, which keeps the platform's services up: its configuration, start and XML-RPC interface.

A service that ends within STARTED_S is restarted after 1, 2, 3 ... seconds; a service that ran longer, at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import xmlrpc.client
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from models.errors import StoreError
from models.files import write_json, write_text
from models.launch import launched
from tasks.host import processes
from tasks.host.workspace import CLONE, Workspace

STARTED_S = 8
WORKER = "worker"
RETRIES = 20
STOP_S = 15
ANSWER_S = 1.0
START_TIMEOUT_S = 20.0
POLL_S = 0.05
LONGEST_SOCKET = 100  # the kernel takes 107 bytes
PROGRAM = """
[program:{name}]
command={command}
directory={directory}
priority={priority}
autorestart=true
startsecs={started}
startretries={retries}
stopwaitsecs={stop}
killasgroup=true
stopsignal={stopsignal}
redirect_stderr=true
stdout_logfile={log}
stdout_logfile_maxbytes=5MB
stdout_logfile_backups=1
"""
DAEMON = """\
[unix_http_server]
file={socket}
chmod=0700

[supervisord]
nodaemon=true
silent=true
identifier=loopline
directory={directory}
logfile={folder}/supervisord.log
logfile_maxbytes=5MB
logfile_backups=1
pidfile={folder}/supervisord.pid
childlogdir={folder}/logs
minfds=256

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""


def configuration(folder: Path, root: Path, names: Sequence[str]) -> str:
    """Return supervisord's configuration: services start in the order of `names` and end in reverse order."""
    text = DAEMON.format(socket=_quoted(socket_path(folder)), folder=_quoted(folder), directory=_quoted(CLONE))
    for priority, name in enumerate(names, 1):
        command = [sys.executable, *launched("tasks.platform.service_main", str(root), name)]
        text += PROGRAM.format(
            name=name,
            command=_quoted(shlex.join(command)),
            directory=_quoted(CLONE),
            priority=priority,
            started=STARTED_S,
            retries=RETRIES,
            stop=STOP_S,
            stopsignal="KILL" if name == WORKER else "TERM",  # a killed worker's runs stay open and are continued
            log=_quoted(_quoted(folder / "logs" / f"{name}.log")),  # supervisord expands this path twice
        )
    return text


def _quoted(value: object) -> str:
    """Escape `%`, which supervisord expands."""
    return str(value).replace("%", "%%")


def socket_path(folder: Path) -> Path:
    """Return supervisord's socket: in `folder`, or in an own temporary folder if that path is too long."""
    path = folder / "supervisor.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path
    mark = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"loopline-{os.getuid()}" / f"{mark}.sock"


def start(workspace: Workspace, folder: Path, names: Sequence[str], environ: dict[str, str]) -> dict[str, Any]:
    """Start supervisord in the background with these services; write and return its note.

    Raises:
        StoreError: supervisord did not start; the message names its log folder.
    """
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    _refuse_comments(folder, CLONE)
    listens = socket_path(folder)
    _own_folder(listens.parent, folder)
    write_text(folder / "supervisord.conf", configuration(folder, workspace.root, names))
    for old in (folder / "supervisord.log", listens):
        old.unlink(missing_ok=True)
    with (folder / "supervisord.out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(folder / "supervisord.conf")],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=CLONE,
            env=environ,
        )
    note: dict[str, Any] = {"process": processes.identity(process.pid), "socket": str(listens)}
    write_json(folder / "supervisor.json", note)
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), connected(note["socket"]) as supervised:
            supervised.getState()
            process.returncode = 0  # prevents Python's warning about a running child: supervisord outlives this process
            return note
        time.sleep(POLL_S)
    process.kill()
    lines = (folder / "supervisord.out").read_text(errors="replace").strip().splitlines()
    raise StoreError(f"supervisord did not start: {lines[0] if lines else 'it said nothing'}: see {folder}")


def _refuse_comments(*folders: Path) -> None:
    """Check that supervisord can read these paths in its configuration, which has no quotes.

    Raises:
        StoreError: supervisord would read the rest of a path as a comment.
    """
    for folder in folders:
        for mark in (" #", " ;"):
            if mark in str(folder):
                raise StoreError(f"{folder}: supervisord takes what follows {mark!r} for a comment: rename the folder")


def _own_folder(parent: Path, folder: Path) -> None:
    """Create the socket's folder for this user alone, so that nobody else can pose as supervisord.

    Raises:
        StoreError: The folder belongs to or is open to other users.
    """
    if parent == folder:
        return
    parent.mkdir(mode=0o700, exist_ok=True)
    stat = parent.lstat()
    if stat.st_uid != os.getuid() or stat.st_mode & 0o077 or parent.is_symlink():
        raise StoreError(f"{parent}: is not this user's alone: remove it, or set TMPDIR")


@contextlib.contextmanager
def connected(path: str, timeout_s: float = ANSWER_S) -> Iterator[Any]:
    """Connect to supervisord's XML-RPC interface (`supervisor.*`) over its socket.

    Raises:
        OSError: supervisord does not respond.
    """
    try:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(timeout_s)
            stream.connect(path)
            yield xmlrpc.client.ServerProxy("http://supervisor", transport=_Transport(stream)).supervisor
    except (http.client.HTTPException, xmlrpc.client.Error, ExpatError) as error:  # supervisord ends or was killed
        raise ConnectionError(repr(error)) from error


def start_service(supervised: Any, name: str) -> None:
    """Start an ended service, unless supervisord has restarted it in the meantime.

    Args:
        supervised: The interface from `connected`.
        name: The service's name.

    Raises:
        StoreError: The service cannot be started.
    """
    from supervisor.xmlrpc import Faults  # type: ignore[import-untyped]

    try:
        supervised.startProcess(name, False)
    except xmlrpc.client.Fault as fault:
        if fault.faultCode != Faults.ALREADY_STARTED:
            raise StoreError(f"{name}: supervisord cannot start it: {fault.faultString}: see its log") from fault


class _Transport(xmlrpc.client.Transport):
    """Sends requests over one open socket, which has a timeout; supervisor's `SupervisorTransport` has none."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__()
        self._http = http.client.HTTPConnection("localhost")
        self._http.sock = stream
        self._http.auto_open = 0  # a closed connection is an error; it would be opened again over TCP

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return self._http
