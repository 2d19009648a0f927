"""Two machines save, keep and clean up the checkpoints of one job, in any order of their acts at the object store.

One holds the loop's lease, the other lost it and goes on after a pause of any length between any two acts, because it
asks for its lease before an act and not within it. At every moment the newest checkpoint of the highest epoch is whole.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.errors import LeaseLostError
from models.files import Hashes, sha256
from tasks.host.object_store import ObjectStore
from tasks.host.workspace import Workspace
from tasks.state import snapshots
from tasks.state.snapshots import DAY_S, LocalFile
from tasks.state.step_records import StepRecords
from tasks.state.step_store import StepStore

CONTENTS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=2)
"""Contents of the files of a checkpoint: two machines that train the same job write the same bytes."""
SAVES = st.lists(CONTENTS, min_size=2, max_size=4)
TURNS = st.lists(st.tuples(st.integers(1, 25), st.booleans()), min_size=4, max_size=6)
"""For how many operations the old machine, the new one, the old one and so on go on, and whether days pass before."""
OPERATIONS = ("find", "put", "put_file", "get", "listed", "delete")


class SteppedStore(ObjectStore):
    """An object store of one machine, whose every operation waits for its turn."""

    def __init__(self, address: str, machine: Machine) -> None:
        super().__init__(address)
        self.machine = machine

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name not in OPERATIONS:
            return method
        machine = super().__getattribute__("machine")
        return lambda *arguments: machine.in_turn(method, *arguments)


class Machine:
    """A machine that saves checkpoints, sweeps, and forgets those of a step that is recorded."""

    def __init__(self, root: Path, epoch: int, saves: list[list[str]], holder: Callable[[], int]) -> None:
        self._root, self._epoch, self._saves, self._holder = root, epoch, saves, holder
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self.has_begun = self.has_ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None

    def take_turn(self) -> None:
        """Let the machine go on until just before its next operation at the store."""
        if self.has_ended:
            return
        if not self.has_begun:
            self.has_begun = True
            self._thread.start()
        else:
            self._go.release()
        self._paused.acquire()

    def finish(self) -> None:
        while self.has_begun and not self.has_ended:
            self.take_turn()

    def in_turn(self, method: Callable[..., Any], *arguments: Any) -> Any:
        self._paused.release()
        self._go.acquire()
        return method(*arguments)

    def _run(self) -> None:
        try:
            self._act()
        except LeaseLostError:
            pass
        except BaseException as error:
            self.error = error
        self.has_ended = True
        self._paused.release()

    def _act(self) -> None:
        store = step_store(SteppedStore(f"file://{self._root}/store", self), self._root)
        checkpoints = store.checkpoints(job_folder(self._root))
        for count, contents in enumerate(self._saves):
            self._confirm()
            checkpoints.save(self._files(contents), self._epoch, count)
        self._confirm()
        store.sweep([], self._confirm)

    def _confirm(self) -> None:
        if self._holder() != self._epoch:
            raise LeaseLostError("taken over")

    def _files(self, contents: list[str]) -> dict[str, LocalFile]:
        paths = {f"{index}": self._root / content for index, content in enumerate(contents)}
        for content, path in zip(contents, paths.values(), strict=True):
            path.write_text(content)
        return {name: LocalFile(path, sha256(path)) for name, path in paths.items()}


def job_folder(root: Path) -> Path:
    return Workspace(root).state / "projects" / "tiny" / "work" / "train" / "k"


def step_store(store: ObjectStore, root: Path) -> StepStore:
    state = Workspace(root).state / "projects" / "tiny"
    return StepStore(store, state, StepRecords(state, root), Hashes(root / "hashes.json"))


def let_days_pass(root: Path) -> None:
    for path in (root / "store").rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - 8 * DAY_S,) * 2)


OVERTAKEN = [(9, False), (3, False), (25, False), (1, False)]
"""The new machine is about to write its first manifest when the old one cleans up after its third checkpoint."""


@example(old_saves=[["a"], ["b"], ["c"]], new_saves=[["d"]], turns=OVERTAKEN)
@example(old_saves=[["a"], ["b"], ["c"]], new_saves=[["a"]], turns=OVERTAKEN)  # found as uploaded already
@settings(max_examples=20)
@given(old_saves=SAVES, new_saves=SAVES, turns=TURNS)
def test_the_newest_checkpoint_of_the_highest_epoch_is_always_whole(
    old_saves: list[list[str]], new_saves: list[list[str]], turns: list[tuple[int, bool]]
):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(snapshots, "_AT_ONCE", 1):
        root = Path(folder)
        machines: dict[str, Machine] = {}

        def holder() -> int:
            return 2 if machines["new"].has_begun else 1

        machines |= {"old": Machine(root, 1, old_saves, holder), "new": Machine(root, 2, new_saves, holder)}
        plain = step_store(ObjectStore(f"file://{root}/store"), root).checkpoints(job_folder(root))
        try:
            for number, (operations, is_later) in enumerate(turns):
                if is_later:
                    let_days_pass(root)
                for _ in range(operations):
                    machines[("old", "new")[number % 2]].take_turn()
                if names := plain.names():
                    plain.load(names[-1], lambda name, number=number: root / f"{number}-{name}")
        finally:
            for paused in machines.values():
                paused.finish()
        assert [ended.error for ended in machines.values()] == [None, None]
