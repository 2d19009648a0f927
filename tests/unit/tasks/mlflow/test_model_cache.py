"""A version is fetched once, every file of it checked each time, and there while the registry is away."""

import json
import shutil
from pathlib import Path

import pytest

from models.errors import StoreError, UsageError
from models.files import sha256
from models.serving.registry import FILES, RegisteredVersion
from tasks.mlflow import model_cache, registry_reader
from tasks.mlflow.model_cache import cached_version, local_copy, with_verdict
from tests.told_facts import verdict


@pytest.fixture
def store(tmp_path):
    """The files of version 3."""
    folder = tmp_path / "store"
    folder.mkdir()
    for name in ("model.onnx", "preparation.json"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def registry(monkeypatch, store):
    """A registry with version 3, which is the champion; says what was fetched of it, and can go away."""
    tags = {FILES: json.dumps({path.name: sha256(path) for path in store.iterdir()})}
    fetched: list[str] = []

    def found(root, model, wanted="champion"):
        if fetched[-1:] == ["away"]:
            raise StoreError("the registry cannot be reached")
        return RegisteredVersion(number="3", tags=tags) if wanted in ("champion", "3") else None

    def located(model, number):
        fetched.append(number)
        return str(store)

    monkeypatch.setattr(registry_reader, "named", found)
    monkeypatch.setattr(registry_reader, "files_at", located)
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


def test_only_the_files_that_are_needed_are_brought(workspace, registry):
    folder = cached_version(workspace, "tiny", names=("preparation.json",)).folder
    assert [path.name for path in folder.iterdir()] == ["preparation.json"]
    with pytest.raises(StoreError, match=r"model\.onnx is missing"):
        local_copy(workspace, "tiny")
    assert local_copy(workspace, "tiny", "3", ("preparation.json",)).folder == folder
    assert (cached_version(workspace, "tiny").folder / "model.onnx").is_file()
    assert registry == ["3", "3"]


def test_files_of_another_version_with_the_number_do_not_stay(workspace, registry):
    """Its registry was lost, and another one counts from 1 again."""
    folder = cached_version(workspace, "tiny").folder
    for name in ("old.npy", "model.onnx"):
        (folder / name).write_text("old")
    cached_version(workspace, "tiny")
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "preparation.json"]


@pytest.mark.parametrize(("spoil", "got"), [(lambda path: path.write_text("x"), "changed"), (Path.unlink, "missing")])
def test_what_the_store_does_not_hold_any_more_is_refused(workspace, registry, store, spoil, got):
    spoil(store / "model.onnx")
    with pytest.raises(StoreError, match=rf"model\.onnx is {got} in the store: .* `loopline rollback`"):
        cached_version(workspace, "tiny")


def test_from_a_store_that_only_mlflow_reads_it_fetches(workspace, registry, store, monkeypatch):
    monkeypatch.setattr(registry_reader, "files_at", lambda *_: "s3://bucket/3")
    monkeypatch.setattr(model_cache, "fetch", lambda workspace, model, number, folder: shutil.copytree(store, folder))
    assert (cached_version(workspace, "tiny").folder / "model.onnx").read_text() == "model.onnx"


def test_the_cache_remembers_a_champion_that_is_whole(workspace, registry):
    with pytest.raises(StoreError):
        local_copy(workspace, "tiny")
    folder = cached_version(workspace, "tiny").folder
    assert local_copy(workspace, "tiny").number == "3"
    (folder / "model.onnx").write_text("tampered")
    with pytest.raises(StoreError):
        local_copy(workspace, "tiny")


def test_a_verdict_is_read_where_it_is_and_none_where_it_cannot_be(registry, store, monkeypatch):
    version = RegisteredVersion(number="3")
    assert with_verdict("tiny", version) == version
    (store / "verdict.json").write_text(verdict().model_dump_json())
    assert with_verdict("tiny", version).verdict == verdict()
    (store / "verdict.json").write_text('{"another": "form"}')
    assert with_verdict("tiny", version) == version
    monkeypatch.setattr(registry_reader, "files_at", lambda *_: f"s3:/{store}")
    assert with_verdict("tiny", version) == version
