"""Access to the workspace's own servers: their secret, and the environment variables that carry it.

Prefect's API can start runs with commands of the caller's choice, and MLflow's and Optuna's pages can rename and delete
data, so each requires the secret. Prefect's server (`tasks/prefect/prefect_server.py`) also refuses foreign Host
headers and does not let pages of other origins read its responses. Every process that `stores.configure` prepares has
the secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from models.files import read_json
from tasks.host.http_guard import secret_in
from tasks.host.workspace import Workspace

USER = "loopline"
NAMES = ("127.0.0.1", "localhost")
"""The host names in addresses of the workspace's own servers."""
MISSING = "the workspace's secret is needed: user and password are the line in .loopline/prefect/secret"
"""The response to a request without the secret."""
API = "PREFECT_API_URL"
CLIENT = "PREFECT_API_AUTH_STRING"
SERVER = "PREFECT_SERVER_API_AUTH_STRING"
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
MLFLOW_USER, MLFLOW_PASSWORD, MLFLOW_TOKEN = (f"MLFLOW_TRACKING_{name}" for name in ("USERNAME", "PASSWORD", "TOKEN"))
"""Variables with the credentials of MLflow's client; user and password take precedence over the token."""


def secret_path(workspace: Workspace) -> Path:
    """Return the file of the secret `loopline:...`, user and password; only its owner can read it."""
    return workspace.state / "prefect" / "secret"


def make_secret(workspace: Workspace) -> str:
    """Return the secret, made at first use.

    Raises:
        StoreError: The secret's file cannot be written.
    """
    return secret_in(secret_path(workspace), f"{USER}:")


def is_own(workspace: Workspace, api: str) -> bool:
    """Return whether an address of Prefect's API is of the workspace's own server, the running one or the last one."""
    folder = workspace.state / "prefect"
    memory = folder / "port"  # the port of the next server; the running one may have another
    ports = [read_json(folder / "server.json").get("port"), memory.read_text().strip() if memory.exists() else None]
    return _on_loopback(api).removesuffix("/api") in {f"http://127.0.0.1:{port}" for port in ports if port}


def _on_loopback(url: str) -> str:
    return url.rstrip("/").replace("//localhost:", "//127.0.0.1:")


def credentials(workspace: Workspace, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which Prefect's and MLflow's clients authenticate at the workspace's own servers.

    Args:
        workspace: The workspace; if its servers never ran, it has no secret.
        environ: Names the servers in use: a server elsewhere never gets our secret. For MLflow, the user's own name and
            token take precedence.
    """
    path = secret_path(workspace)
    if not path.exists():
        return {}
    secret = path.read_text().strip()
    api, store = environ.get(API, ""), _on_loopback(environ.get("MLFLOW_TRACKING_URI", ""))
    headers = {CLIENT: secret} if not api or is_own(workspace, api) else {}
    port = read_json(workspace.platform / "ports.json").get("ports", {}).get("mlflow")
    is_elsewhere = store.startswith(("http://", "https://")) and store != f"http://127.0.0.1:{port}"
    if is_elsewhere or (environ.get(MLFLOW_USER) or USER) != USER or environ.get(MLFLOW_TOKEN):
        return headers
    return {**headers, MLFLOW_USER: USER, MLFLOW_PASSWORD: secret.removeprefix(f"{USER}:")}


def use(workspace: Workspace, api: str) -> None:
    """Let this process use a Prefect server; call this before Prefect is imported."""
    os.environ[API] = api
    os.environ.update(credentials(workspace, os.environ))


def server_environment(workspace: Workspace, port: int) -> dict[str, str]:
    """Return the variables that make the server require the secret and respond to no page but its own."""
    secret = make_secret(workspace)
    return {CLIENT: secret, SERVER: secret, ORIGINS: ",".join(origins(port))}


def origins(port: int) -> list[str]:
    """Return the origins of the own pages of a server on loopback."""
    return [f"http://{name}:{port}" for name in NAMES]


def elsewhere(workspace: Workspace) -> dict[str, str]:
    """Return services and addresses of other servers that the environment names: they are used, not started."""
    named = {"prefect": os.environ.get("PREFECT_API_URL", ""), "mlflow": os.environ.get("MLFLOW_TRACKING_URI", "")}
    return {
        name: url
        for name, url in named.items()
        if url.startswith(("http://", "https://")) and not is_own(workspace, url)
    }
