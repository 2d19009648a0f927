"""Files of artifacts go from a folder and from an object store; the server's are in `tests/integration`."""

from pathlib import Path

import boto3
import pytest

from models.errors import StoreError
from tasks.mlflow import artifact_files
from tests.s3 import BUCKET, s3


def test_a_folder_goes_by_its_path_and_by_its_address_and_twice_is_once(tmp_path: Path) -> None:
    for text in (str, Path.as_uri):
        folder = tmp_path / "my work #1" / "artifacts"
        folder.mkdir(parents=True)
        (folder / "card.html").touch()
        for _ in range(2):
            artifact_files.remove(text(folder))
        assert not folder.exists()


def test_objects_below_the_address_go_and_those_beside_it_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3() as environ:
        endpoint = environ.pop("AWS_ENDPOINT_URL")
        monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", endpoint)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        artifact_files.remove(f"s3://{BUCKET}/loops/1")
        bucket = boto3.resource("s3", endpoint_url=endpoint).Bucket(BUCKET)
        for name in ("loops/1/card.html", "loops/1/model/a.onnx", "loops/10/card.html"):
            bucket.put_object(Key=name, Body=b"")
        artifact_files.remove(f"s3://{BUCKET}/loops/1")
        assert [found.key for found in bucket.objects.filter(Prefix="loops/")] == ["loops/10/card.html"]


def test_files_of_another_kind_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="got files at gs:, expected one of"):
        artifact_files.remove("gs://lab/loops/1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://lab/mlflow")
    with pytest.raises(StoreError, match="set MLFLOW_TRACKING_URI to its address"):
        artifact_files.remove("mlflow-artifacts:/loops/1")
