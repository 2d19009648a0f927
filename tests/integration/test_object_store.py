"""The object store on a file system and on a real S3 server: whole or not at all, and errors with their cures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models.errors import StoreError
from models.serving.registry import FILES, RegisteredVersion
from tasks.host.object_store import LAYOUT_NAME, DamagedError, ObjectStore
from tasks.host.store_addresses import ROOT
from tasks.host.workspace import Workspace
from tasks.mlflow import model_cache, registry_reader
from tasks.mlflow.model_cache import cached_version, with_verdict
from tests.s3 import BUCKET, s3


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3() as environ:
        yield environ


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, server: dict[str, str], monkeypatch) -> ObjectStore:
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    if request.param == "s3":
        return ObjectStore(f"s3://{BUCKET}/{tmp_path.name}")
    return ObjectStore(f"file://{tmp_path}/store")


def test_what_is_put_is_got_listed_and_deleted(store: ObjectStore, tmp_path: Path):
    content = b"weights" * 1000
    (tmp_path / "weights").write_bytes(content)
    store.put_file("a/blobs/weights", tmp_path / "weights")
    store.put("a/note", b"one")
    store.put("a/note", b"other")
    store.put("b/note", b"elsewhere")
    assert store.get("a/note") == b"other"
    assert store.get("a/none") is None
    with store.opened("a/note") as file:
        assert file.read(3) == b"oth"
    with pytest.raises(FileNotFoundError):
        store.opened("a/none")
    assert store.find("a/none") is None
    assert {name: info.size for name, info in store.listed("a").items()} == {"a/blobs/weights": 7000, "a/note": 5}
    assert store.listed("c") == {}
    store.get_file("a/blobs/weights", tmp_path / "copy", hashlib.sha256(content).hexdigest())
    assert (tmp_path / "copy").read_bytes() == content
    store.delete(["a/note", "a/none"])
    assert list(store.listed("a")) == ["a/blobs/weights"]
    assert list(store.listed("b")) == ["b/note"]


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_missing_object_and_an_empty_folder_are_a_request_each(store: ObjectStore, caplog: pytest.LogCaptureFixture):
    store.put("a/note-2", b"one")
    with caplog.at_level("INFO", "werkzeug"):
        assert store.find("a/note") is None
        assert store.listed("a/note") == {}
    assert len([record for record in caplog.records if record.name == "werkzeug"]) == 2


def test_an_object_that_is_not_what_was_stored_leaves_the_local_file(store: ObjectStore, tmp_path: Path):
    (tmp_path / "mine").write_text("mine")
    store.put("blob", b"changed")
    for name, said in (("blob", "is not what was stored"), ("none", "there is no such object")):
        with pytest.raises(DamagedError, match=said):
            store.get_file(name, tmp_path / "mine", "0" * 64)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["mine"]
    assert (tmp_path / "mine").read_text() == "mine"


def test_of_several_that_create_one_name_one_does(store: ObjectStore):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda number: store.create("study", str(number).encode()), range(8)))
    assert made.count(True) == 1
    assert store.get("study") == str(made.index(True)).encode()
    assert list(store.listed("")) == ["study"]


def test_a_store_of_another_layout_is_refused(store: ObjectStore):
    store.check()
    store.check()
    store.put(LAYOUT_NAME, b"99\n")
    with pytest.raises(StoreError, match="has layout '99', expected '1': another version of Loopline"):
        store.check()


def test_no_bucket_no_credentials_and_no_server_name_their_cures(
    server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from tasks.host import object_store

    def refusal(address: str, **environ: str) -> str:
        object_store._file_system.cache_clear()
        with monkeypatch.context() as patch:
            for name, value in {**server, **environ}.items():
                patch.setenv(name, value)
            if "AWS_PROFILE" in environ:
                patch.delenv("AWS_ACCESS_KEY_ID")
            with pytest.raises(StoreError) as error:
                ObjectStore(address).check()
        object_store._file_system.cache_clear()
        return str(error.value)

    assert "there is no bucket 'nobody'" in refusal("s3://nobody/x")
    assert "set AWS_ACCESS_KEY_ID" in refusal(f"s3://{BUCKET}/x", AWS_PROFILE="stranger")
    assert "run again when it answers" in refusal(f"s3://{BUCKET}/x", AWS_ENDPOINT_URL="http://127.0.0.1:1")
    (tmp_path / "file").touch()
    assert "a file lies where a folder is expected" in refusal(f"file://{tmp_path}/file/store")
    assert "cannot be used" in refusal("file:///proc/none")


def test_the_files_of_a_version_are_read_without_mlflow(
    workspace: Workspace, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    root = f"s3://{BUCKET}/versions"
    for name, value in {**server, ROOT: root}.items():
        monkeypatch.setenv(name, value)
    files = {"model.onnx": b"graph", "verdict.json": b"no verdict"}
    for name, content in files.items():
        ObjectStore(root).put(f"mlflow/tiny/3/{name}", content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    version = RegisteredVersion(number="3", tags={FILES: json.dumps(hashes)})
    monkeypatch.setattr(registry_reader, "named", lambda *_: version)
    monkeypatch.setattr(registry_reader, "files_at", lambda *_: f"{root}/mlflow/tiny/3")
    monkeypatch.setattr(model_cache, "fetch", None)
    folder = cached_version(workspace, "tiny").folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    assert with_verdict("tiny", version) == version
    ObjectStore(root).put("mlflow/tiny/3/model.onnx", b"tampered")
    (folder / "model.onnx").unlink()
    with pytest.raises(StoreError, match=r"model\.onnx is changed in the store"):
        cached_version(workspace, "tiny")


def test_an_endpoint_that_moved_is_followed_in_the_same_process(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    address = f"s3://{BUCKET}/moved"
    with s3() as before:
        for name, value in before.items():
            monkeypatch.setenv(name, value)
        ObjectStore(address).put("note", b"kept")  # moto's servers in a process share their buckets
    monkeypatch.setenv("AWS_ENDPOINT_URL", server["AWS_ENDPOINT_URL"])
    assert ObjectStore(address).get("note") == b"kept"
