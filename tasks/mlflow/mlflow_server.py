"""MLflow's server over the workspace's store: its UI, and the REST API that other machines use.

`mlflow server` imports MLflow for its command line, then starts a second process that imports it again and serves. Here
uvicorn serves MLflow's app in one process: this saves 2.3 s of CPU until it answers and 180 MB while it runs
(mlflow 3.17.2).
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from models.files import read_json, write_json
from tasks.host import logs, ports, processes, server_access, stores
from tasks.host.http_guard import CHALLENGE, bears_secret
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEALTH = "/health"
AWAKE = "mlflow.json"
"""A file in the platform's folder: the process and the port of the server, which starts on demand."""


def awake_server(workspace: Workspace) -> str:
    """Return the address of the workspace's own server if somebody has opened it since `up`, else an empty string."""
    mark = read_json(workspace.platform / AWAKE)
    return f"http://{ports.LOOPBACK}:{mark['port']}" if mark and processes.is_alive_here(mark["process"]) else ""


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


def main() -> None:
    """Run the server of a workspace: `python -m tasks.mlflow.mlflow_server ROOT --port 5000`."""
    gc.disable()  # a fifth of the CPU that the imports take, while somebody waits for the page
    workspace, port = Workspace(Path(sys.argv[1])), int(sys.argv[3])
    stores.configure(workspace)
    embedded_store.initialise(workspace)
    workspace.platform.mkdir(parents=True, exist_ok=True)
    write_json(workspace.platform / AWAKE, {"process": processes.identity(), "port": port})
    import uvicorn  # before MLflow, which rejects foreign hosts only if it detects a server
    from mlflow.server import constants

    # Through the environment, as MLflow reads it: an argument would show a database's password.
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: os.environ["MLFLOW_TRACKING_URI"],
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: stores.artifact_address(workspace, os.environ["MLFLOW_TRACKING_URI"])
        or str(stores.artifact_root(workspace)),
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    from mlflow.server.fastapi_app import app  # it reads that environment

    gc.enable()
    app.add_middleware(SecretMiddleware, secret=server_access.make_secret(workspace))
    logs.to_stderr()
    uvicorn.Server(uvicorn.Config(app, log_config=None)).run(sockets=[ports.listener(port)])


if __name__ == "__main__":
    main()
