"""MLflow's server over the workspace's store: its UI, and the REST API that other machines use.

`mlflow server` imports MLflow for its command line, then starts a second process that imports it again and serves. Here
the first process serves: this saves 3 s of CPU until it answers and 190 MB while it runs (mlflow 3.17.2).
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.host import server_access, stores
from tasks.host.http_guard import CHALLENGE, bears_secret
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEALTH = "/health"


class SecretMiddleware:
    """Admits requests with the workspace's secret, and any request to `/health`, which the supervisor uses."""

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app, self._secret = app, secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        app = self._app
        if scope["type"] != "lifespan" and scope["path"] != HEALTH:
            authorization = Headers(scope=scope).get("authorization", "")
            if not bears_secret(authorization, self._secret):
                app = PlainTextResponse(server_access.MISSING, 401, {"WWW-Authenticate": CHALLENGE})
        await app(scope, receive, send)


def _arguments(workspace: Workspace, port: int) -> list[str]:
    listens = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    return ["server", *listens, "--artifacts-destination", str(stores.artifact_root(workspace))]


def _environment(workspace: Workspace) -> dict[str, str]:
    """Return the server's environment; the store is not an argument, as a database's address contains its password."""
    ours = stores.environment(workspace)
    store = {"MLFLOW_BACKEND_STORE_URI": ours["MLFLOW_TRACKING_URI"], "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return {**ours, **store}


def _serve_here(command: list[str], extra_env: dict[str, str], **_: Any) -> None:
    """Run uvicorn in this process, where MLflow would start `python -m uvicorn ...`; and require the secret."""
    from uvicorn.main import main as uvicorn

    os.environ.update(extra_env)
    from mlflow.server.fastapi_app import app  # it reads that environment

    app.add_middleware(SecretMiddleware, secret=server_access.make_secret(Workspace(Path(sys.argv[1]))))
    uvicorn(command[command.index("uvicorn") + 1 :])


def main() -> None:
    """Run the server of a workspace: `python -m tasks.mlflow.mlflow_server ROOT --port 5000`."""
    workspace, port = Workspace(Path(sys.argv[1])), int(sys.argv[3])
    stores.configure(workspace)
    embedded_store.initialise(workspace)
    os.environ.update(_environment(workspace))
    importlib.import_module("uvicorn")  # before MLflow, which rejects foreign hosts only if it detects a server
    import mlflow.server
    from mlflow.cli import cli

    mlflow.server._exec_cmd = _serve_here
    cli(_arguments(workspace, port))


if __name__ == "__main__":
    main()
