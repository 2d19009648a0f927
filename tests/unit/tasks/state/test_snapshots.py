"""Snapshots: whole or not there, each file once, and deleted only when nothing names them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from models.errors import LeaseLostError
from models.files import sha256
from tasks.host.object_store import DamagedError, ObjectStore
from tasks.state.snapshots import DAY_S, LocalFile, Snapshots


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}/store")


@pytest.fixture
def snapshots(store: ObjectStore) -> Snapshots:
    return Snapshots(store, "steps")


def files(folder: Path, **contents: str) -> dict[str, LocalFile]:
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(content)
    return {name: LocalFile(folder / name, sha256(folder / name)) for name in contents}


def aged(tmp_path: Path, days: float) -> None:
    """Let all objects be so many days older."""
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - days * DAY_S,) * 2)


def yes() -> None:
    """This process may delete."""


def blobs(store: ObjectStore) -> int:
    return len(store.listed("steps/blobs"))


def test_a_snapshot_is_loaded_as_it_was_saved(snapshots: Snapshots, store: ObjectStore, tmp_path: Path):
    saved = snapshots.save(files(tmp_path / "a", model="m", report="r", again="r"))
    assert blobs(store) == 2
    assert snapshots.save(files(tmp_path / "a", model="m", report="r", again="r")) == saved
    copy = tmp_path / "b"
    files(copy, model="another's", mine="mine")
    snapshots.load(saved, lambda name: None if name == "again" else copy / name)
    assert {path.name: path.read_text() for path in copy.iterdir()} == {"model": "m", "report": "r", "mine": "mine"}


def test_without_its_manifest_or_a_blob_there_is_no_snapshot(snapshots: Snapshots, store: ObjectStore, tmp_path: Path):
    saved = snapshots.save(files(tmp_path / "a", model="m"))
    (manifest,) = store.listed("steps/manifests")
    store.put(manifest, b'{"model": "other"}')
    with pytest.raises(DamagedError, match="it is damaged"):
        snapshots.load(saved, lambda name: tmp_path / name)
    store.delete([manifest])
    with pytest.raises(DamagedError, match="it is not there"):
        snapshots.load(saved, lambda name: tmp_path / name)
    snapshots.save(files(tmp_path / "a", model="m"))
    store.delete(list(store.listed("steps/blobs")))
    with pytest.raises(DamagedError, match="there is no such object"):
        snapshots.load(saved, lambda name: tmp_path / name)
    assert not (tmp_path / "model").exists()


def test_what_nobody_used_for_long_is_swept_and_no_more(snapshots: Snapshots, store: ObjectStore, tmp_path: Path):
    used = snapshots.save(files(tmp_path / "a", model="m", data="d"))
    snapshots.save(files(tmp_path / "a", model="other", data="d"))
    store.put("steps/blobs/torn", b"of a writer that was killed before its manifest")
    assert snapshots.sweep({used}, yes) == 0
    aged(tmp_path, 13)
    assert snapshots.sweep({used}, yes) == 0, "the one in use counts as used now"
    aged(tmp_path, 15)
    new = snapshots.save(files(tmp_path / "a", model="new"))
    assert snapshots.sweep({used}, yes) == len("other") + len("of a writer that was killed before its manifest")
    assert sorted(snapshots.names()) == sorted([used, new])
    assert set(snapshots.digests(used)) == {"model", "data"}
    assert blobs(store) == 3


def test_a_file_that_may_soon_be_swept_is_written_anew(snapshots: Snapshots, store: ObjectStore, tmp_path: Path):
    snapshots.save(files(tmp_path / "a", model="m"))
    aged(tmp_path, 8)
    snapshots.save(files(tmp_path / "a", model="m", more="x"))
    assert min(info.modified for info in store.listed("steps/blobs").values()) > time.time() - DAY_S


def test_of_checkpoints_the_newest_stay(snapshots: Snapshots, store: ObjectStore, tmp_path: Path):
    for number in range(4):
        snapshots.save(files(tmp_path / "a", state=f"{number}", best="b"), f"{number:04d}-")
        snapshots.keep_newest(2)
    assert [name[:5] for name in snapshots.names()] == ["0002-", "0003-"]
    assert blobs(store) == 3


def test_who_lost_its_lease_between_a_look_and_its_deletion_deletes_nothing(
    snapshots: Snapshots, store: ObjectStore, tmp_path: Path
):
    def lost() -> None:
        raise LeaseLostError("taken over")

    snapshots.save(files(tmp_path / "a", model="m"))
    aged(tmp_path, 15)
    before = store.listed("steps")
    with pytest.raises(LeaseLostError):
        snapshots.sweep(set(), lost)
    assert store.listed("steps") == before


def test_a_file_that_no_manifest_names_yet_stays_with_the_newest(
    snapshots: Snapshots, store: ObjectStore, tmp_path: Path
):
    store.put("steps/blobs/new", b"of a manifest that is written next")
    for number in range(3):
        snapshots.save(files(tmp_path / "a", state=f"{number}"), f"{number:04d}-")
    snapshots.keep_newest(1)
    assert blobs(store) == 2
    assert store.get("steps/blobs/new")
