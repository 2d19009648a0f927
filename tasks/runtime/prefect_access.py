"""The secret of the workspace's own Prefect server: without it any page and any local user could run commands here.

Prefect's API creates runs with commands of the caller's choice. The server asks for the secret, and lets no page of
another origin read its answers; every process that `stores.configure` prepares knows it.
"""

from __future__ import annotations

import os
from pathlib import Path

from tasks.runtime.doors import secret_in
from tasks.runtime.workspace import Workspace

USER = "loopline"
API = "PREFECT_API_URL"
CLIENT = "PREFECT_API_AUTH_STRING"
SERVER = "PREFECT_SERVER_API_AUTH_STRING"
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"


def secret_path(workspace: Workspace) -> Path:
    """Where the secret lies, readable by its owner alone: what Prefect's page asks a person for, `loopline:...`."""
    return workspace.state / "prefect" / "secret"


def make_secret(workspace: Workspace) -> str:
    """The secret, made at first use.

    Raises:
        StoreError: Its file cannot be written.
    """
    return secret_in(secret_path(workspace), f"{USER}:")


def own_url(workspace: Workspace) -> str | None:
    """The address of the running server, or of the last one; None if there never was one."""
    port = workspace.state / "prefect" / "port"
    return f"http://127.0.0.1:{port.read_text().strip()}/api" if port.exists() else None


def credentials(workspace: Workspace, api: str | None) -> dict[str, str]:
    """The variable with which Prefect's client gets in, if `api` is the workspace's own server and has a secret.

    Args:
        workspace: Whose.
        api: Where the client speaks to; None for the own server. A server elsewhere never hears our secret.
    """
    path = secret_path(workspace)
    is_own = not api or api.rstrip("/").replace("//localhost:", "//127.0.0.1:") == own_url(workspace)
    return {CLIENT: path.read_text().strip()} if is_own and path.exists() else {}


def use(workspace: Workspace, api: str) -> None:
    """Have this process speak to a server; to be called before Prefect is imported."""
    os.environ.update({API: api, **credentials(workspace, api)})


def server_environment(workspace: Workspace, port: int) -> dict[str, str]:
    """What has the server ask for the secret, and answer no page but its own."""
    secret = make_secret(workspace)
    origins = ",".join(f"http://{name}:{port}" for name in ("127.0.0.1", "localhost"))
    return {CLIENT: secret, SERVER: secret, ORIGINS: origins}
