"""Checkpoints reach the object store while a job writes them, and another machine goes on from the newest whole one."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.errors import LeaseLostError, StoreError
from models.files import Hashes, sha256, write_json
from tasks.host.object_store import ObjectStore
from tasks.host.workspace import Workspace
from tasks.loop import job_uploads
from tasks.loop.job_uploads import uploaded
from tasks.state.snapshots import LocalFile, Snapshots
from tasks.state.step_records import StepRecords
from tasks.state.step_store import StepStore


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_uploads, "LOOK_S", 0.01)


class Machine:
    """A machine that carries the loop, by the lease with this epoch."""

    def __init__(self, root: Path, store: Path, epoch: int) -> None:
        state = Workspace(root).state / "projects" / "tiny"
        self.folder = state / "work" / "train" / "k"
        self.notes: list[str] = []
        self.is_lost = False
        self.objects = ObjectStore(f"file://{store}")
        self.store = StepStore(self.objects, state, StepRecords(state, root), Hashes(root / "hashes.json"))
        report = SimpleNamespace(note=self.notes.append)
        cache = SimpleNamespace(store=self.store)
        self.loop: Any = SimpleNamespace(step_cache=cache, epoch=epoch, report=report, confirm=self._confirm)

    def checkpoint(self, step: int, inside: str = "", **files: str) -> None:
        """Write a checkpoint as a job does: complete under another name, then renamed."""
        place = self.folder / inside / "checkpoints"
        hidden = place / f".step-{step:012d}.tmp"
        hidden.mkdir(parents=True)
        for name, content in files.items():
            (hidden / name).write_text(content)
        write_json(hidden / "manifest.json", {name: sha256(hidden / name) for name in files})
        hidden.rename(place / f"step-{step:012d}")

    def preempted(self, step: int, state: str) -> None:
        """Train until a checkpoint, and be ended by a signal before it is uploaded in the background."""
        with contextlib.suppress(KeyboardInterrupt), uploaded(self.loop, self.folder):
            self.checkpoint(step, state=state)
            raise KeyboardInterrupt

    def names(self) -> list[str]:
        return self.store.checkpoints(self.folder).names()

    def newest(self) -> dict[str, str]:
        """The files of the newest snapshot, of which the writer may just delete the one before."""
        names = self.names()
        return self.store.checkpoints(self.folder).digests(names[-1]) if names else {}

    def files(self) -> dict[str, str]:
        inside = (path for path in self.folder.rglob("*") if path.is_file() and path.name != "manifest.json")
        return {path.relative_to(self.folder).as_posix(): path.read_text() for path in inside}

    def _confirm(self) -> None:
        if self.is_lost:
            raise LeaseLostError("taken over")


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    return lambda name, epoch=1: Machine(tmp_path / name, tmp_path / "store", epoch)


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_next_machine_has_the_newest_checkpoint_and_the_stages(machine):
    first = machine("a")
    with uploaded(first.loop, first.folder):
        first.folder.mkdir(parents=True)
        write_json(first.folder / "job.json", {"folder": "of a"})
        (first.folder / "batch.json").write_text("{}")
        (first.folder / "pretrain").mkdir()
        (first.folder / "pretrain" / "result.json").write_text("pretrained")
        for step in (5, 10, 15):
            first.checkpoint(step, state=f"s{step}", best="b")
            until(lambda step=step: f"checkpoints/step-{step:012d}/state" in first.newest())
    assert len(first.names()) == 2
    shutil.rmtree(first.folder)
    second = machine("b", epoch=2)
    with uploaded(second.loop, second.folder):
        pass
    newest = "checkpoints/step-000000000015"
    assert second.files() == {
        "batch.json": "{}",
        "pretrain/result.json": "pretrained",
        f"{newest}/state": "s15",
        f"{newest}/best": "b",
    }


def test_the_next_machine_has_the_finished_members_of_an_ensemble_and_the_checkpoint_of_the_next(machine):
    first = machine("a")
    with contextlib.suppress(KeyboardInterrupt), uploaded(first.loop, first.folder):
        (first.folder / "members" / "trees").mkdir(parents=True)
        (first.folder / "members" / "trees" / "trees.txt").write_text("grown")
        (first.folder / "members" / "trees" / "result.json").write_text("{}")
        until(lambda: "members/trees/result.json" in first.newest())
        first.checkpoint(5, inside="members/mlp", state="s5")
        raise KeyboardInterrupt
    second = machine("b", epoch=2)
    with uploaded(second.loop, second.folder):
        pass
    assert second.files() == {
        "members/trees/trees.txt": "grown",
        "members/trees/result.json": "{}",
        "members/mlp/checkpoints/step-000000000005/state": "s5",
    }


def test_a_training_that_an_earlier_loopline_began_goes_on(machine):
    first = machine("a")
    first.checkpoint(5, state="s5")
    names = (path for path in first.folder.rglob("*") if path.is_file())
    files = {path.relative_to(first.folder).as_posix(): LocalFile(path, sha256(path)) for path in names}
    Snapshots(first.objects, "projects/tiny/checkpoints/train/k").save(files, "00000007-00000000-")
    second = machine("b", epoch=8)
    with uploaded(second.loop, second.folder):
        pass
    assert second.files() == {"checkpoints/step-000000000005/state": "s5"}


def test_a_torn_upload_is_passed_over(machine):
    first = machine("a")
    for step in (5, 10):
        first.preempted(step, f"s{step}")
    snapshots = first.store.checkpoints(first.folder)
    digests = snapshots.digests(snapshots.names()[-1])
    first.objects.delete(
        [f"projects/tiny/checkpoints/train/k/epoch-00000001/blobs/{digests['checkpoints/step-000000000010/state']}"]
    )
    second = machine("b", epoch=2)
    with uploaded(second.loop, second.folder):
        pass
    assert second.files()["checkpoints/step-000000000005/state"] == "s5"
    assert any("a checkpoint is passed over" in note for note in second.notes)


def test_of_two_that_train_one_job_the_last_to_take_the_loop_wins(machine):
    first, second, third = machine("a"), machine("b", epoch=2), machine("c", epoch=3)
    for carrier, step in ((first, 5), (second, 7), (first, 9)):
        carrier.preempted(step, f"s{step} of epoch {carrier.loop.epoch}")
    first.is_lost = True
    first.preempted(11, "s11 of one that lost the lease")
    with uploaded(third.loop, third.folder):
        pass
    assert "s7 of epoch 2" in third.files().values()
    assert "s11 of one that lost the lease" not in third.files().values()


def test_a_store_that_is_away_does_not_stop_the_training(machine, monkeypatch: pytest.MonkeyPatch):
    first = machine("a")
    put = ObjectStore.put

    def away(*_: object) -> None:
        raise StoreError("away")

    with uploaded(first.loop, first.folder):
        monkeypatch.setattr(ObjectStore, "put", away)
        first.checkpoint(5, state="s5")
        until(lambda: first.notes)
        monkeypatch.setattr(ObjectStore, "put", put)
        until(first.names)
    assert first.notes == ["a checkpoint is not uploaded, and will be tried again: away"]


def test_without_a_root_nothing_happens(tmp_path: Path):
    loop: Any = SimpleNamespace(step_cache=SimpleNamespace(store=None))
    with uploaded(loop, tmp_path / "none"):
        pass
    assert not list(tmp_path.iterdir())
