"""Serve the dashboard: `python -m tasks.dashboard ROOT --host 127.0.0.1 --port 4300`; `/health` is its health check."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tasks.dashboard.app import application
from tasks.dashboard.connection import ArrivalMiddleware, PromptConnection
from tasks.host import stores
from tasks.host.workspace import Workspace

HOST, NAMES = "LOOPLINE_OVERVIEW_HOST", "LOOPLINE_OVERVIEW_NAMES"


def main() -> None:
    """Serve until ended by a signal."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m tasks.dashboard", description=__doc__)
    parser.add_argument("root", type=Path, help="The workspace.")
    parser.add_argument(
        "--host",
        default=os.environ.get(HOST, "127.0.0.1"),
        help="Address to listen at.",
    )
    parser.add_argument("--port", type=int, required=True)
    names = [name.strip() for name in os.environ.get(NAMES, "").split(",") if name.strip()]
    parser.add_argument("--name", action="append", default=names, help="A further Host name, such as a proxy's.")
    args = parser.parse_args()
    workspace = Workspace(args.root.resolve())
    workspace.make()
    stores.configure(workspace)
    app = application(workspace, args.host, args.name)
    uvicorn.run(
        ArrivalMiddleware(app),
        host=args.host,
        port=args.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=PromptConnection,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
