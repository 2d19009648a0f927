"""Files at an address are listed with their versions; whatever is wrong there is one line with its cure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from models.errors import DataError, LooplineError, StoreError, UsageError
from models.sources import remote_files
from models.sources.remote_files import listed, reaching
from tests.certificates import certificate
from tests.file_server import FileServer, file_server


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as served:
        yield served


def test_a_folder_and_a_pattern_name_the_files_that_are_no_hidden_ones(tmp_path: Path) -> None:
    for name in ("city=Oslo/a.csv", "city=Bern/b.csv", "_tmp/c.csv", ".d.csv", "e.predictions.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    assert [file.name for file in listed(f"file://{tmp_path}")] == ["city=Bern/b.csv", "city=Oslo/a.csv"]
    assert [file.name for file in listed(f"file://{tmp_path}/city=*/a.csv")] == ["city=Oslo/a.csv"]


def test_a_version_changes_with_the_content_and_costs_no_byte_of_it(server: FileServer) -> None:
    server.files["/a.csv"] = b"x\n1\n"
    (first,) = listed(f"{server.address}/a.csv?day=1")
    assert (first.name, first.size) == ("a.csv", 4)
    assert listed(f"{server.address}/a.csv?day=1") == [first]
    assert listed(f"{server.address}/a.csv?key=AK/2026/aws4")[0].name == "a.csv"
    server.files["/a.csv"] = b"x\n2\n"
    assert listed(f"{server.address}/a.csv?day=1")[0].version != first.version
    assert server.sent == 0
    assert {line.partition(" ")[0] for line in server.asked} == {"HEAD"}


def refused(server: FileServer, path: str) -> str:
    with pytest.raises(LooplineError) as error:
        listed(f"{server.address}{path}")
    assert isinstance(error.value, DataError | StoreError)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_wrong_at_a_server_is_one_line_with_its_cure(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {"/login": b"<html>", "/a.csv": b"x\n", "/b.csv": b"x\n"}
    server.kinds["/login"] = "text/html"
    server.moved["/moved.csv"] = "/login"
    server.status = {"/a.csv": 401, "/b.csv": 503}
    assert "there is no such file, folder or bucket: correct the address" in refused(server, "/gone.csv")
    assert "its credentials are missing, wrong or expired: set its login in ~/.netrc" in refused(server, "/a.csv")
    assert "it cannot be read: try again" in refused(server, "/b.csv")
    page = refused(server, "/moved.csv")
    assert f"got a page (text/html), and was led to {server.address}/login, expected a table" in page
    with pytest.raises(UsageError, match=r"^data.source: .*: the variable KEY is not set: export it"):
        listed(f"{server.address}/a.csv?key=${{KEY}}")
    monkeypatch.setenv("KEY", "lovelace")
    assert "lovelace" not in refused(server, "/gone.csv?key=${KEY}")
    server.has_versions = False
    server.status = {}
    assert "its server tells neither an ETag nor when it changed" in refused(server, "/a.csv")


def test_a_circle_of_redirects_is_no_missing_file(server: FileServer) -> None:
    server.moved = {"/a.csv": "/b.csv", "/b.csv": "/a.csv"}
    assert "its server redirects in a circle: correct the address, or log in" in refused(server, "/a.csv")


def test_a_slow_server_is_waited_for_no_longer_than_it_is_said(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "READ_S", 0.1)
    server.files, server.delay_s = {"/a.csv": b"x\n"}, 0.4
    assert "it did not answer within 0.1 s: try again when it is less busy" in refused(server, "/a.csv")


def test_a_certificate_of_an_authority_that_is_named_is_trusted(tmp_path: Path) -> None:
    certificate(tmp_path)
    with file_server(tmp_path) as served:
        served.files = {"/a.csv": b"x\n"}
        assert "its certificate is not trusted here: name the authority's file by SSL_CERT_FILE" in refused(
            served, "/a.csv"
        )
        look = f"from models.sources.remote_files import listed; print(listed('{served.address}/a.csv')[0].name)"
        environ = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "cert.pem")}
        run = subprocess.run([sys.executable, "-c", look], env=environ, capture_output=True, text=True, check=True)
        assert run.stdout == "a.csv\n"


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/a.csv", "http://nowhere.invalid/a.csv"])
def test_a_host_that_is_away_is_one_line_with_its_cure(address: str) -> None:
    with pytest.raises(StoreError, match="it cannot be reached: correct the host, or try again"):
        listed(address)


def test_a_token_of_s3_that_expired_is_told(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 answers a HEAD with an expired token by 400, without a word."""
    server.files, server.status = {"/lab/a.csv": b""}, {"/lab/a.csv": 400}
    for name, value in (("ACCESS_KEY_ID", "ada"), ("SECRET_ACCESS_KEY", "lovelace"), ("SESSION_TOKEN", "old")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
    with pytest.raises(StoreError, match="its credentials are missing, wrong or expired: set AWS_ACCESS_KEY_ID"):
        listed("s3://lab/a.csv")


def test_hugging_face_that_is_away_or_refuses_is_told() -> None:
    """Its library, which is not in the lock, asks by httpx."""
    refusal = httpx.HTTPStatusError("no", request=httpx.Request("GET", "/"), response=httpx.Response(401))
    for error, message in (
        (httpx.ConnectError("no route"), "it cannot be reached"),
        (refusal, "its credentials are missing, wrong or expired: set HF_TOKEN"),
    ):
        with pytest.raises(StoreError, match=message), reaching("hf://datasets/lab/trips/train.parquet"):
            raise error


def test_nothing_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such file, folder or bucket"):
        listed(f"file://{tmp_path}/gone.csv")
    with pytest.raises(DataError, match="there is no file, expected some"):
        listed(f"file://{tmp_path}/*.csv")
