"""Files of finished steps come back from the object store, as they were recorded and only where they belong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from models.files import Hashes, sha256
from models.pipeline.records import StepRecord
from tasks.host.object_store import DamagedError, ObjectStore
from tasks.host.workspace import Workspace
from tasks.state.snapshots import LocalFile, Snapshots
from tasks.state.step_records import StepRecords
from tasks.state.step_store import StepStore


class Machine:
    """A machine with a workspace of its own, and the object store that all share."""

    def __init__(self, root: Path, store: Path) -> None:
        self.root = root
        self.state = Workspace(root).state / "projects" / "tiny"
        self.records = StepRecords(self.state, root)
        self.work = self.state / "work" / "train" / "k"
        hashes = Hashes(root / "hashes.json")
        self.store = StepStore(ObjectStore(f"file://{store}"), self.state, self.records, hashes)

    def write(self, **contents: str) -> None:
        for name, content in contents.items():
            path = self.root / name.replace("__", "/") if "__" in name else self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Machine, Machine]:
    return Machine(tmp_path / "a", tmp_path / "store"), Machine(tmp_path / "b", tmp_path / "store")


def finished(machine: Machine) -> StepRecord:
    machine.write(weights="w", job="j", projects__tiny__raw="rows")
    for inner in ("figures/curve.svg", "checkpoints/step-1/state", "trials/x/weights", ".half.tmp"):
        (machine.work / inner).parent.mkdir(parents=True, exist_ok=True)
        (machine.work / inner).write_text(inner)
    paths = [machine.work / "weights", machine.root / "projects/tiny/raw"]
    outputs = {machine.records.name(path): sha256(path) for path in paths}
    record = StepRecord(step="train", key="k", parts={}, outputs=outputs, digest="d", loop_id="l", finished=1.0)
    return machine.store.upload(record, machine.work, 1)


def test_another_machine_has_the_outputs_and_the_files_beside_them(machines: tuple[Machine, Machine]):
    first, second = machines
    record = finished(first)
    shutil.rmtree(first.root)
    second.write(projects__tiny__raw="rows of another spec")
    second.store.fetch(record, second.work)
    assert {path.relative_to(second.root).as_posix() for path in second.root.rglob("*") if path.is_file()} == {
        "projects/tiny/raw",
        *(f".loopline/projects/tiny/work/train/k/{name}" for name in ("weights", "job", "figures/curve.svg")),
    }
    assert second.records.broken(record, Hashes(second.root / "hashes.json")) is None


def test_one_file_is_fetched_alone(machines: tuple[Machine, Machine]):
    first, second = machines
    second.store.fetch(finished(first), second.work, only=second.work / "job")
    assert [path.name for path in second.root.rglob("*") if path.is_file()] == ["job"]


def test_a_name_that_leads_elsewhere_is_not_written(machines: tuple[Machine, Machine], tmp_path: Path):
    first, second = machines
    record = finished(first)
    names = ("../../outside", ".loopline/projects/tiny/work/train/k/../../x")
    steps = Snapshots(ObjectStore(f"file://{tmp_path}/store"), "projects/tiny/steps")
    evil = steps.save({name: _local(first.work / "job") for name in names})
    second.store.fetch(record.model_copy(update={"snapshot": evil}), second.work)
    assert not [path for path in tmp_path.rglob("*") if path.name in ("outside", "x") and path.is_file()]


def test_checkpoints_go_when_the_step_is_recorded(machines: tuple[Machine, Machine]):
    first, second = machines
    finished(first)
    folder = first.work / "trials" / "x"
    files = {"state": _local(first.work / "checkpoints/step-1/state")}
    first.store.checkpoints(folder).save(files, epoch=2, count=0)
    first.store.checkpoints(first.work).forget(1)
    assert first.store.checkpoints(folder).names(), "who lost the loop harms nothing of the one who has it"
    second.store.checkpoints(second.work).forget(2)
    assert first.store.checkpoints(folder).names() == []


def test_a_store_that_lost_the_files_says_so(machines: tuple[Machine, Machine], tmp_path: Path):
    first, second = machines
    record = finished(first)
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(DamagedError, match="it is not there"):
        second.store.fetch(record, second.work)


def _local(path: Path) -> LocalFile:
    return LocalFile(path, sha256(path))
