"""MLflow's own server with accounts, the app of `mlflow server --app-name basic-auth`, for the length of a block."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tasks.host.ports import any_free
from tasks.mlflow.mlflow_server import HEALTH
from tasks.prefect.prefect_server import answers
from tests import warm

ADMIN, PASSWORD = "admin", "a-password-of-tests"
START_TIMEOUT_S = 60.0
_CONFIG = """[mlflow]
default_permission = READ
database_uri = sqlite:///{folder}/accounts.db
admin_username = {admin}
admin_password = {password}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 600
"""


def account(url: str, name: str, password: str = PASSWORD) -> dict[str, str]:
    """Return the environment in which an account uses the server."""
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    return dict(zip(names, (url, name, password), strict=True))


@contextlib.contextmanager
def serving_accounts(folder: Path, *names: str) -> Iterator[str]:
    """Serve the store `mlflow.db` of a folder; yield the address.

    Args:
        folder: Holds the store, which was initialised.
        names: Accounts besides ADMIN, which may read all that others make. All have PASSWORD.
    """
    from mlflow.server import constants

    config, log, port = folder / "accounts.ini", folder / "server.log", any_free([])
    config.write_text(_CONFIG.format(folder=folder, admin=ADMIN, password=PASSWORD))
    environ = os.environ | {
        constants.BACKEND_STORE_URI_ENV_VAR: f"sqlite:///{folder}/mlflow.db",
        constants.ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: str(folder / "files"),
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "of tests",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [
        "-m",
        "uvicorn",
        "--factory",
        "--interface",
        "wsgi",
        "mlflow.server.auth:create_app",
        "--port",
        str(port),
    ]
    with log.open("ab") as out:
        process = warm.start_python(command, environ, Path(__file__).parents[1], out)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(f"{url}{HEALTH}"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        for name in names:
            _post(url, "2.0/mlflow/users/create", username=name, password=PASSWORD)
        yield url
    finally:
        process.kill()
        process.wait()


def permit(url: str, name: str, model: str, permission: str) -> None:
    """Give an account a permission on a registered model."""
    resource = {"resource_type": "registered_model", "resource_id": model}
    _post(url, "3.0/mlflow/users/permissions/grant", username=name, permission=permission, **resource)


def _post(url: str, endpoint: str, **fields: str) -> None:
    secret = base64.b64encode(f"{ADMIN}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {secret}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/{endpoint}", json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=30):
        pass
