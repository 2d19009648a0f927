"""Optuna's dashboard over the workspace's studies: `python -m tasks.tools.optuna_page ROOT --port 4301`.

The `optuna-dashboard` program would open the journal with its own lock instead of the lock that searches use; here it
gets the same storage as the searches. The program has no login; here the workspace's secret is required, and foreign
Host headers are refused (DNS rebinding).
"""

from __future__ import annotations

import argparse
import contextlib
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from tasks.host import ports, server_access, stores
from tasks.host.http_guard import CHALLENGE, AccessRules, bears_secret, is_foreign
from tasks.host.workspace import Workspace

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

Start = Callable[..., Any]
Wsgi = Callable[[dict[str, Any], Start], Iterable[bytes]]
HEALTH = "/health"
STUDY = "/study/"
PLAIN = ("Content-Type", "text/plain")


class _Server(ThreadingMixIn, WSGIServer):
    """Serves an application at a socket that listens."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, app: Wsgi) -> None:
        super().__init__(listener.getsockname(), _Quiet, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()
        self.setup_environ()
        self.set_app(app)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def guarded(app: Wsgi, secret: str) -> Wsgi:
    """Refuse foreign Host headers, forms from other sites, and requests without the secret.

    `/health` needs no secret.
    """
    rules = AccessRules("127.0.0.1", ())

    def ask(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        names = (name for name in environ if name.startswith("HTTP_"))
        headers = {name[5:].replace("_", "-").lower(): environ[name] for name in names}
        is_looking = environ["REQUEST_METHOD"] in ("GET", "HEAD")  # a link on another site sends these
        if not rules.names_us(headers.get("host", "")) or (is_foreign(headers) and not is_looking):
            start("403 Forbidden", [PLAIN])
            return [b"not asked from this page"]
        if environ["PATH_INFO"] == HEALTH:
            start("200 OK", [PLAIN])
            return [b"ok"]
        if not bears_secret(headers.get("authorization", ""), secret):
            start("401 Unauthorized", [PLAIN, ("WWW-Authenticate", CHALLENGE)])
            return [server_access.MISSING.encode()]
        return app(environ, start)

    return ask


def by_name(app: Wsgi, storage: BaseStorage) -> Wsgi:
    """Redirect `/study/NAME` to the dashboard's page of that study, which has a number, else to the list of studies."""

    def ask(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if not path.startswith(STUDY):
            return app(environ, start)
        place = "/dashboard/"
        with contextlib.suppress(KeyError):
            name = path.removeprefix(STUDY).encode("latin-1").decode("utf-8", "replace")
            place = f"/dashboard/studies/{storage.get_study_id_from_name(name)}"
        start("302 Found", [("Location", place)])
        return []

    return ask


def dashboard(workspace: Workspace) -> Wsgi:
    """Return Optuna's dashboard application."""
    from optuna_dashboard import wsgi

    from tasks.tools.optuna_study import storage

    study_storage = storage(workspace)
    return by_name(wsgi(study_storage), study_storage)


def main() -> None:
    """Serve until ended by a signal."""
    parser = argparse.ArgumentParser(prog="python -m tasks.tools.optuna_page", description=__doc__)
    parser.add_argument("root", type=Path, help="The workspace.")
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    workspace = Workspace(args.root.resolve())
    workspace.make()
    stores.configure(workspace)
    app = guarded(dashboard(workspace), server_access.make_secret(workspace))
    with _Server(ports.listener(args.port), app) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
