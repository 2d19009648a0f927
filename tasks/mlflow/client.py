"""The client of MLflow's stores, which gives up within seconds, and what it raises if a store is away."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from models.errors import StoreError, one_line
from tasks.host import sqlite_files, stores
from tasks.host.store_addresses import without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient

PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}


def client() -> MlflowClient:
    """Return a client of the tracking store that gives up within seconds, not minutes, if the store is away.

    Raises:
        StoreError: The store cannot be opened.
    """
    for key, value in PATIENCE.items():
        os.environ.setdefault(key, value)
    from mlflow import MlflowClient

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # its errors become a StoreError
    with reaching_store():
        return MlflowClient()


_UNREACHABLE = {
    "MlflowException",
    "ConnectionError",
    "SQLAlchemyError",
    "OSError",
    "BotoCoreError",
    "ClientError",
    "Boto3Error",
}
"""Names of errors that the store or its artifact store raises (the last three come from the S3 client)."""


def refusal(status: int, where: str, reason: str) -> StoreError | None:
    """Return the error of MLflow's server that refuses an account, by the status of its answer; None: it does not."""
    if status == HTTPStatus.UNAUTHORIZED:
        return StoreError(
            f"{where}: does not know this account ({reason}): correct MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if status == HTTPStatus.FORBIDDEN:
        return StoreError(
            f"{where}: this account lacks a permission ({reason}): give it MANAGE on the project's registered model "
            "and experiment"
        )
    return None


@contextlib.contextmanager
def reaching_store() -> Iterator[None]:
    """Raise a StoreError if the tracking store is away or broken."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if kinds & _UNREACHABLE:
            uri = os.environ.get("MLFLOW_TRACKING_URI", "")
            where = f"the tracking store {without_password(uri)}"
            status = getattr(error, "get_http_status_code", int)()  # MLflow's own errors have it
            cure = sqlite_files.cure(error, "put it back from a copy") if stores.is_embedded(uri) else None
            raise refusal(status, where, one_line(error)) or StoreError(
                f"{where} cannot be used: {cure or one_line(error)}. What is not "
                "logged yet stays under .loopline/ and is delivered by the next run, or by `loopline reap`"
            ) from error
        raise


def matches(search: Callable[..., Any], condition: str) -> Iterator[Any]:
    """Yield all that a search of the client finds, which MLflow answers in pages.

    Args:
        search: A method of the client, such as `search_model_versions`.
        condition: MLflow's filter, such as `name = 'flights'`.
    """
    token = None
    while True:
        page = search(condition, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
