"""Removes files from MLflow's artifact store: MLflow publishes no call for it (tried: 3.17)."""

from __future__ import annotations

import contextlib
import os
import shutil
import urllib.error
from urllib.parse import unquote, urlsplit

from models.errors import StoreError
from tasks.mlflow.client import refusal
from tasks.mlflow.registry_reader import opened

TIMEOUT_S = 120.0
"""MLflow's server removes a folder while the request waits."""


def remove(address: str) -> None:
    """Remove a folder of artifacts; it may be gone already.

    Args:
        address: As MLflow has it: a path, or a URI of the kind `file`, `s3` or `mlflow-artifacts`.

    Raises:
        StoreError: The address is of another kind, or the store refuses.
        OSError: The store is away.
    """
    kind = urlsplit(address).scheme
    if kind not in _REMOVE:
        raise StoreError(f"{address}: got files at {kind}:, expected one of {', '.join(_REMOVE)}: remove them by hand")
    _REMOVE[kind](address)


def _remove_path(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _remove_file_uri(address: str) -> None:
    _remove_path(unquote(urlsplit(address).path))


def _remove_objects(address: str) -> None:
    import boto3

    place = urlsplit(address)
    store = boto3.resource("s3", endpoint_url=os.environ.get("MLFLOW_S3_ENDPOINT_URL"))
    answers = store.Bucket(place.netloc).objects.filter(Prefix=f"{place.path.strip('/')}/").delete()
    errors = [error for answer in answers for error in answer.get("Errors", ())]
    if errors:
        raise StoreError(f"{address}: {len(errors)} objects stay: {errors[0]['Message']}: allow s3:DeleteObject there")


def _remove_behind_server(address: str) -> None:
    server, place = os.environ["MLFLOW_TRACKING_URI"], urlsplit(address)
    if not server.startswith("http"):
        raise StoreError(f"{address}: its server alone reaches these files: set MLFLOW_TRACKING_URI to its address")
    if place.netloc:
        server = f"{urlsplit(server).scheme}://{place.netloc}"
    address = f"{server.rstrip('/')}/api/2.0/mlflow-artifacts/artifacts/{place.path.strip('/')}"
    try:
        opened(address, TIMEOUT_S, method="DELETE").close()
    except urllib.error.HTTPError as error:
        error.close()
        raise refusal(error.code, address, "DELETE") or StoreError(
            f"the server of {address} answered {error.code}: look at its log, or correct MLFLOW_TRACKING_URI"
        ) from error


_REMOVE = {
    "": _remove_path,
    "file": _remove_file_uri,
    "s3": _remove_objects,
    "mlflow-artifacts": _remove_behind_server,
}
