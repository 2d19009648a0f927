"""Prefect's server with TrustedHostMiddleware: `python -m tasks.prefect.secured_server PORT`."""

from __future__ import annotations

import sys

from tasks.host.garbage import collected_aside
from tasks.host.server_access import NAMES


def serve(port: int) -> None:
    """Run Prefect's server on loopback; unlike `prefect server start`, it does not accept every Host header.

    Its settings come from the environment, including `server_environment`.
    """
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import PREFECT_SERVER_API_KEEPALIVE_TIMEOUT, PREFECT_SERVER_LOGGING_LEVEL
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    # Outside the app: Prefect's automations call the app within the process, with their own Host name.
    with collected_aside():
        uvicorn.run(
            TrustedHostMiddleware(create_app(final=True), allowed_hosts=list(NAMES)),
            host="127.0.0.1",
            port=port,
            timeout_keep_alive=PREFECT_SERVER_API_KEEPALIVE_TIMEOUT.value(),
            log_level=PREFECT_SERVER_LOGGING_LEVEL.value().lower(),
        )


if __name__ == "__main__":
    serve(int(sys.argv[1]))
