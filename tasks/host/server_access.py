"""Access to the workspace's own servers: their secret, and the environment that carries it.

Prefect's API creates runs with commands of the caller's choice, and MLflow's and Optuna's pages rename and delete what
was made. Each asks for the secret. Prefect's (`tasks/prefect/secured_server.py`) also answers no
foreign Host and lets no page of another origin read its answers. Every process that `stores.configure` prepares knows
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
"""By which the own servers are spoken to."""
MISSING = "the workspace's secret is needed: user and password are the line in .loopline/prefect/secret"
"""What a request without it is answered."""
API = "PREFECT_API_URL"
CLIENT = "PREFECT_API_AUTH_STRING"
SERVER = "PREFECT_SERVER_API_AUTH_STRING"
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
MLFLOW_USER, MLFLOW_PASSWORD, MLFLOW_TOKEN = (f"MLFLOW_TRACKING_{name}" for name in ("USERNAME", "PASSWORD", "TOKEN"))
"""How MLflow's client says who it is; a token gives way to user and password."""


def secret_path(workspace: Workspace) -> Path:
    """Path of the secret, readable by its owner alone: `loopline:...`, user and password."""
    return workspace.state / "prefect" / "secret"


def make_secret(workspace: Workspace) -> str:
    """The secret, made at first use.

    Raises:
        StoreError: Its file cannot be written.
    """
    return secret_in(secret_path(workspace), f"{USER}:")


def is_own(workspace: Workspace, api: str) -> bool:
    """Whether an address of Prefect's API is that of the workspace's own server, the running one or the last."""
    folder = workspace.state / "prefect"
    memory = folder / "port"  # where the next one is to listen, which the running one need not do
    ports = [read_json(folder / "server.json").get("port"), memory.read_text().strip() if memory.exists() else None]
    return _on_loopback(api).removesuffix("/api") in {f"http://127.0.0.1:{port}" for port in ports if port}


def _on_loopback(url: str) -> str:
    return url.rstrip("/").replace("//localhost:", "//127.0.0.1:")


def credentials(workspace: Workspace, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with which Prefect's and MLflow's clients get into the workspace's own servers.

    Args:
        workspace: Whose. One whose servers never ran has no secret.
        environ: Names the servers that are used: one elsewhere never hears our secret. To MLflow's the user's own
            name and token go first.
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
    """Have this process speak to a server; to be called before Prefect is imported."""
    os.environ[API] = api
    os.environ.update(credentials(workspace, os.environ))


def server_environment(workspace: Workspace, port: int) -> dict[str, str]:
    """The environment with which Prefect's server requires the secret and accepts only its own page."""
    secret = make_secret(workspace)
    origins = ",".join(f"http://{name}:{port}" for name in NAMES)
    return {CLIENT: secret, SERVER: secret, ORIGINS: origins}


def elsewhere(workspace: Workspace) -> dict[str, str]:
    """Services that the environment names on other servers, and their addresses: those are used, not started."""
    named = {"prefect": os.environ.get("PREFECT_API_URL", ""), "mlflow": os.environ.get("MLFLOW_TRACKING_URI", "")}
    return {
        name: url
        for name, url in named.items()
        if url.startswith(("http://", "https://")) and not is_own(workspace, url)
    }
