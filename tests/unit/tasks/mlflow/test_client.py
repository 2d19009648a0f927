import os

import pytest
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError, NoCredentialsError

from models.errors import GateRefused, StoreError
from tasks.mlflow.client import PATIENCE, reaching_store


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("refused"),
        PermissionError("denied"),
        NoCredentialsError(),
        ClientError({"Error": {"Code": "403"}}, "PutObject"),
        S3UploadFailedError("no"),
    ],
)
def test_what_a_store_says_is_a_store_error_without_the_password(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://ada:secret@db.example.org/mlflow")
    with pytest.raises(StoreError, match=r"db\.example\.org/mlflow cannot be used") as caught, reaching_store():
        raise error
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [GateRefused("no"), StoreError("own words"), ValueError("a bug")])
def test_other_errors_pass_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error), match=f"^{error}$"), reaching_store():
        raise error


def test_patience_is_seconds_unless_the_user_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "300")
    for key, value in PATIENCE.items():
        os.environ.setdefault(key, value)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "300"
    assert int(PATIENCE["MLFLOW_HTTP_REQUEST_MAX_RETRIES"]) <= 3
