"""What no loop used goes from the object store too; published files follow the rule of the local ones."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import LeaseLostError
from models.files import Hashes, sha256
from models.pipeline.records import StepRecord
from tasks.gc import stored_files
from tasks.gc.collect import KINDS, Limits, find, remove
from tasks.gc.snapshot import ProjectRows, Snapshot, take
from tasks.host import leases
from tasks.host.leases import Lease
from tasks.host.object_store import object_store
from tasks.host.store_addresses import ROOT
from tasks.host.workspace import Workspace
from tasks.state.shared_files import publish
from tasks.state.step_records import StepRecords
from tasks.state.step_store import StepStore
from tests.past_loops import DAY_S, add_loop, aged, crown

NAME = "tiny"
KIND = [kind for kind in KINDS if kind.name == "object store"]


@contextlib.contextmanager
def alone(project: ProjectRows) -> Iterator[Lease]:
    with leases.leased(project.state.parents[1], f"loop:{project.name}") as lease:
        yield lease


@pytest.fixture
def bucket(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two steps that share a file, two checkpoints, published files of two loops; the first of each is 200 days old."""
    monkeypatch.setenv(ROOT, f"file://{tmp_path}/bucket")
    store, state = object_store(), workspace.state / "projects" / NAME
    assert store
    records = StepRecords(state, workspace.root)
    steps = StepStore(store, state, records, Hashes(tmp_path / "hashes.json"))
    for number, age in ((1, "old"), (2, "new")):
        add_loop(workspace, NAME, number, 200, folders=False)
        work = state / "work" / "train" / f"{age}{'0' * 13}"
        for name, content in (("shared.bin", "both"), (f"{age}.bin", age)):
            aged(work / name, 0, content)
        outputs = {records.name(path): sha256(path) for path in work.iterdir()}
        record = StepRecord(step="train", key=work.name, parts={}, outputs=outputs, digest=age, loop_id=age, finished=0)
        steps.upload(record, work, 1)
        for path in (f"quarantine/tiny-{number}/raw/report.json", f"references/{number}.json", "reports/raw.html"):
            publish(state, number, aged(state / path, 200))
        store.put(f"projects/{NAME}/checkpoints/train/{age}/epoch-00000001/blobs/x", b"x")
        if age == "old":
            for path in (tmp_path / "bucket").rglob("*"):
                os.utime(path, (time.time() - 200 * DAY_S,) * 2)
    crown(workspace, NAME, "2")
    return tmp_path / "bucket" / "projects" / NAME


def files(bucket: Path) -> set[str]:
    return {path.relative_to(bucket).as_posix() for path in bucket.rglob("*") if path.is_file()}


def snapshot_of(workspace: Workspace) -> Snapshot:
    return take(workspace, [NAME], {}, {NAME: {}})


def test_what_is_old_and_not_needed_goes(workspace: Workspace, bucket: Path) -> None:
    before, snapshot = files(bucket), snapshot_of(workspace)
    collection = find(snapshot, KIND)
    listed = {candidate.name.partition(":")[0]: candidate for candidate in collection.candidates["object store"]}
    assert {name for name, candidate in listed.items() if candidate.reason} == {"steps", "checkpoints", "published"}
    assert listed["unused"].name == "unused: 5 objects", "a manifest, its file, a checkpoint, and two of a loop"
    assert sum(candidate.size for candidate in listed.values()) == sum(
        path.stat().st_size for path in bucket.rglob("*") if path.is_file()
    )
    assert files(bucket) == before
    remove(snapshot, collection, alone, Limits(), KIND)
    gone = before - files(bucket)
    assert {"checkpoints/train/old/epoch-00000001/blobs/x", "references/1.json/00000001"} <= {
        path.removeprefix("published/") for path in gone
    }
    assert "published/quarantine/tiny-1/raw/report.json/00000001" in gone
    assert len(gone) == 5
    again = snapshot_of(workspace)
    assert all(candidate.reason for candidate in stored_files.stored_files(again))


def test_who_lost_the_project_deletes_nothing(workspace: Workspace, bucket: Path) -> None:
    def lost() -> None:
        raise LeaseLostError("taken over")

    before, snapshot = files(bucket), snapshot_of(workspace)
    with pytest.raises(LeaseLostError):
        stored_files.delete_stored(snapshot, NAME, [*stored_files.stored_files(snapshot)][:1], lost)
    assert files(bucket) == before


def test_without_an_object_store_there_is_nothing(workspace: Workspace) -> None:
    add_loop(workspace, NAME, 1, 200, folders=False)
    assert [*stored_files.stored_files(snapshot_of(workspace))] == []
