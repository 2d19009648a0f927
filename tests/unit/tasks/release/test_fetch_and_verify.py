"""A version is brought once, whole, signed where there is a key, and tried where a crash costs nothing."""

import json
import os

import pytest

from models.errors import StoreError
from models.files import sha256
from models.serving.registry import FILES, RegisteredVersion
from models.signing import TAG, signature
from tasks.mlflow.registry_reader import numbered
from tasks.release import fetch_and_verify
from tasks.release.fetch_and_verify import bring, try_out
from tests.alias_server import alias_server
from tests.served_models import write_served


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow's server, which says where a version's files are."""
    with alias_server() as (registry, url):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        yield registry


@pytest.fixture
def stored(workspace, mlflow):
    """Version 1 in a local store."""
    folder = workspace.root / "store"
    write_served(folder)
    hashes = {path.name: sha256(path) for path in folder.iterdir()}
    mlflow.register(workspace, "tiny", "1", {FILES: json.dumps(hashes)}, folder, "champion")
    return folder


def test_it_is_copied_and_stays_whole(workspace, stored):
    folder = bring(workspace, "tiny", numbered("tiny", "1"))
    assert (folder / "model.onnx").read_bytes() == (stored / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(b"tampered")
    bring(workspace, "tiny", numbered("tiny", "1"))
    assert (folder / "model.onnx").read_bytes() == (stored / "model.onnx").read_bytes()


def test_what_the_store_changed_is_refused_and_what_was_here_is_kept(workspace, stored):
    folder = bring(workspace, "tiny", numbered("tiny", "1"))
    (folder / "preparation.json").unlink()
    for name in ("model.onnx", "preparation.json"):
        (stored / name).write_bytes(b"tampered")
    with pytest.raises(StoreError, match=r"preparation\.json is changed in the store"):
        bring(workspace, "tiny", numbered("tiny", "1"))
    assert (folder / "model.onnx").is_file()
    assert not (folder / "preparation.json").exists()


def test_with_a_key_only_what_is_signed_is_let_in(workspace, stored, monkeypatch):
    monkeypatch.setenv("LOOPLINE_SIGNING_KEY", "key")
    plain = numbered("tiny", "1")
    with pytest.raises(StoreError, match="not signed with this server's key"):
        bring(workspace, "tiny", plain)
    signed = {**plain.tags, TAG: signature("key", "tiny", json.loads(plain.tags[FILES]))}
    assert bring(workspace, "tiny", RegisteredVersion(number="1", tags=signed)).is_dir()


def test_a_version_without_hashes_is_refused(workspace, stored):
    with pytest.raises(StoreError, match="nothing says what its files should be"):
        bring(workspace, "tiny", RegisteredVersion(number="1", tags={}))


@pytest.mark.parametrize("name", ["../model.onnx", "/tmp/model.onnx", "a/../../b", "..", ""])
def test_a_name_that_leads_out_of_the_version_is_refused(workspace, stored, name):
    with pytest.raises(StoreError, match="expected one inside the version"):
        bring(workspace, "tiny", RegisteredVersion(number="1", tags={FILES: json.dumps({name: "ab"})}))


def test_from_another_store_another_process_fetches(workspace, stored, mlflow, monkeypatch):
    asked = []
    mlflow.register(workspace, "tiny", "1", {}, "s3://bucket/1", None)
    monkeypatch.setattr(fetch_and_verify, "_run", lambda *given: asked.append(given))
    bring(workspace, "tiny", numbered("tiny", "1"))
    wanted = ("tasks.release.registry_jobs", fetch_and_verify.FETCH_S, str(workspace.root), "tiny", "fetch", "1")
    assert asked == [wanted]


def test_a_model_that_does_not_answer_is_refused_with_its_own_words(stored):
    try_out("tiny", "1", stored)
    (stored / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="ONNX Runtime cannot run it"):
        try_out("tiny", "1", stored)


def test_one_that_crashes_or_hangs_takes_only_its_own_process(tmp_path, monkeypatch):
    (tmp_path / "crashing.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "hanging.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(StoreError, match=r"crashed the process that tested it \(signal 11\)"):
        fetch_and_verify._run("crashing", 60)
    with pytest.raises(StoreError, match=r"not done within 0\.5 s"):
        fetch_and_verify._run("hanging", 0.5)
