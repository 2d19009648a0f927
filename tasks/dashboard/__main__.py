"""Serve the dashboard: `python -m tasks.dashboard ROOT --port 4300`; `/health` is its health check."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tasks.dashboard import uploads
from tasks.dashboard.app import application
from tasks.host import stores
from tasks.host.http_guard import overview_host
from tasks.host.workspace import Workspace

MOST_CONNECTIONS = 1000
"""While there are more, each request gets 503: silent clients are nginx's to drop."""
NAMES = "LOOPLINE_OVERVIEW_NAMES"


def main() -> None:
    """Serve until ended by a signal."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m tasks.dashboard", description=__doc__)
    parser.add_argument("root", type=Path, help="The workspace.")
    parser.add_argument("--port", type=int, required=True)
    names = [name.strip() for name in os.environ.get(NAMES, "").split(",") if name.strip()]
    parser.add_argument("--name", action="append", default=names, help="A further Host name, such as a proxy's.")
    args = parser.parse_args()
    host = overview_host()
    workspace = Workspace(args.root.resolve())
    workspace.make()
    stores.configure(workspace)
    # Starlette keeps an upload there while it comes: /tmp may be small.
    os.environ["TMPDIR"] = str(uploads.place_of(workspace))
    app = application(workspace, host, args.name)
    config = uvicorn.Config(
        app,
        host=host,
        port=args.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    app.state.is_ending = lambda: server.should_exit  # pages that follow a loop would hold up its end
    server.run()


if __name__ == "__main__":
    main()
