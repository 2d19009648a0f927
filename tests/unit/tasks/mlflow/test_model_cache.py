"""A version is fetched once, every file of it checked each time, and there while the registry is away."""

import json
import shutil

import pytest

from models.errors import StoreError, UsageError
from models.files import sha256
from tasks.mlflow import model_cache
from tasks.mlflow.artifacts import FILES
from tasks.mlflow.model_cache import cached_version
from tasks.mlflow.registry_reader import RegisteredVersion


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A registry with version 3, which is the champion; says what was fetched of it, and can go away."""
    store = tmp_path / "store"
    store.mkdir()
    for name in ("model.onnx", "preparation.json"):
        (store / name).write_text(name)
    tags = {FILES: json.dumps({path.name: sha256(path) for path in store.iterdir()})}
    fetched: list[str] = []

    def found(model, wanted):
        if fetched[-1:] == ["away"]:
            raise StoreError("the registry cannot be reached")
        return RegisteredVersion(number="3", tags=tags) if wanted in ("champion", "3") else None

    def download(workspace, model, version, to):
        fetched.append(version)
        shutil.copytree(store, to / "files")
        return to / "files"

    monkeypatch.setattr(model_cache, "_look_up", found)
    monkeypatch.setattr(model_cache, "download_version", download)
    return fetched


def test_it_is_fetched_once(workspace, registry):
    first = cached_version(workspace, "tiny")
    assert (first.number, first.note) == ("3", "")
    assert (first.folder / "model.onnx").read_text() == "model.onnx"
    assert cached_version(workspace, "tiny", "3").folder == first.folder
    assert registry == ["3"]
    assert sorted(path.name for path in first.folder.parent.iterdir()) == ["3", "3.json", "aliases.json"]


def test_a_damaged_file_is_fetched_again(workspace, registry):
    folder = cached_version(workspace, "tiny").folder
    (folder / "model.onnx").write_text("tampered")
    cached_version(workspace, "tiny")
    assert (folder / "model.onnx").read_text() == "model.onnx"
    (folder / "preparation.json").unlink()
    cached_version(workspace, "tiny")
    assert registry == ["3", "3", "3"]


def test_while_the_registry_is_away_the_cache_answers_if_it_is_whole(workspace, registry):
    folder = cached_version(workspace, "tiny").folder
    registry.append("away")
    found = cached_version(workspace, "tiny")
    assert (found.number, found.folder) == ("3", folder)
    assert "going on with version 3 from the cache" in found.note
    (folder / "model.onnx").write_text("tampered")
    with pytest.raises(StoreError, match=r"model\.onnx is not what was registered"):
        cached_version(workspace, "tiny")
    with pytest.raises(StoreError, match="does not hold version 'challenger' either"):
        cached_version(workspace, "tiny", "challenger")


def test_no_such_version_is_told(workspace, registry):
    with pytest.raises(UsageError, match="no version '9': name another"):
        cached_version(workspace, "tiny", "9")
