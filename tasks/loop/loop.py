"""One loop: its records, and the execution of each step exactly once."""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from models.cores import cpu_seconds
from models.files import storing
from models.pipeline.keys import key_of
from models.pipeline.records import StepRecord, digest_of
from models.pipeline.steps import BY_NAME
from models.project_spec import own_reads
from models.project_spec.blocks import Spec
from tasks.host import memory
from tasks.host.leases import Lease
from tasks.host.workspace import Project, Workspace
from tasks.loop.history import save_step
from tasks.loop.inputs import Inputs as Inputs
from tasks.loop.loop_pages import PAGE_OF_STEP, keep_page
from tasks.loop.step_cache import StepCache
from tasks.mlflow.delivery import MlflowExporter
from tasks.ranks.rank_pool import RankPool
from tasks.state.outbox import Outbox

if TYPE_CHECKING:
    from sqlalchemy import Connection

TORCH_STEPS = ("search", "train", "export")
TRAINING_STEPS = ("search", "train")
STOPS = ("KeyboardInterrupt", "TerminationSignal", "SystemExit")
"""Exceptions that stop a step from outside: the step itself did not fail."""


@dataclass
class StepResult:
    """The return value of a step: its output files, and its result as plain data."""

    outputs: list[Path] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)


class Reporter(Protocol):
    """Receives a loop's progress: a live display, plain lines, or Prefect's log."""

    def step(self, name: str, state: str, detail: str = "") -> None:
        """Report a step's state: begun (`run`), done before (`done`), ended (`ok`, `failed`; `stopped` by a signal)."""

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        """Report that a step finished one of its units (trials, epochs)."""

    def note(self, text: str) -> None:
        """Report a line of text."""


class SilentReporter:
    """A reporter that ignores all reports."""

    def step(self, name: str, state: str, detail: str = "") -> None:
        """Do nothing."""

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


class Loop:
    """A running loop, with everything that a step needs."""

    def __init__(
        self, project: Project, spec: Spec, loop_id: str, trigger: str, reporter: Reporter, lease: Lease | None = None
    ) -> None:
        self.project = project
        self.workspace: Workspace = project.workspace
        self.spec = spec
        self.id = loop_id
        self.trigger = trigger
        self.report = reporter
        self.step_cache = StepCache(project, spec)
        self.state = self.step_cache.state
        self.lease = lease
        self.outbox = Outbox(self.state, loop_id, lease)
        self.delivery = MlflowExporter(self.workspace, spec.name, loop_id)
        self.rank_pool = RankPool()
        self.done: dict[str, StepRecord] = {}
        self.ran: list[str] = []
        self.refresh: frozenset[str] = frozenset()
        self.lost_device_s = 0.0
        self.at = ""

    def carry_out(self, name: str, act: Callable[[Inputs, Path], StepResult]) -> tuple[StepRecord, bool]:
        """Run a step unless its record is valid; return its record and whether it was done before.

        Args:
            name: The step.
            act: Runs the step with its declared inputs, in a folder that stays between attempts at one key; returns
                the step's result.
        """
        step = BY_NAME[name]
        self.step_cache.code.renew()  # it may have been edited since the last step
        parts, record, trouble = self.step_cache.current(step, self.done)
        if record and not trouble and (name not in self.refresh or record.loop_id == self.id):
            trouble = self.step_cache.fetch(record)
            if not trouble:
                self._save(record, is_new=False)
                self.report.step(name, "done")
                return self.done[name], True
            self.report.note(f"{name}: runs again: {trouble}")
        self._begin(name)
        parts = self.step_cache.begun(step, parts)
        key = key_of(parts)
        began, spent = time.perf_counter(), cpu_seconds() if name in TRAINING_STEPS else 0.0
        seen = self.step_cache.work(name, key) / own_reads.file_name("loop")
        try:
            with storing(self.state), own_reads.saving(seen):  # a full disk raises StoreError wherever a step meets it
                outcome = self._act(act, self.step_cache.inputs(step, self.done, parts), self.work(name, key))
        except BaseException as error:
            if name in TRAINING_STEPS:
                self.lost_device_s += max(0.0, cpu_seconds() - spent)
            kind = type(error).__name__
            self.report.step(name, "stopped" if kind in STOPS else "failed", kind)
            raise
        outputs = {self.step_cache.records.name(path): self.step_cache.hashes.of(path) for path in outcome.outputs}
        seconds = time.perf_counter() - began
        record = StepRecord(
            step=name,
            key=key,
            parts={**parts, **self.step_cache.read_parts(step, parts, own_reads.load(seen.parent))},
            outputs=outputs,
            digest=digest_of(outputs) if outputs else key_of(outcome.result),
            result=outcome.result,
            loop_id=self.id,
            finished=time.time(),
            seconds=round(seconds, 3),
        )
        self._save(record, is_new=True)
        self.step_cache.save()
        self.ran.append(name)
        self.report.step(name, "ok", f"{seconds:.1f} s")
        return self.done[name], False

    def _act(self, act: Callable[[Inputs, Path], StepResult], inputs: Inputs, folder: Path) -> StepResult:
        """Carry out a step; its large arrays lie beside its files."""
        from models import scratch  # Arrow, which a loop without a step to run does not import

        with scratch.arrays_in(folder):
            return act(inputs, folder)

    def apart(self, table: Path, function: str, **keywords: Any) -> Any:
        """Call `package.module:function`, which reads a table; of a large one in a process that ends with it.

        What its libraries hold would stay in the loop else, beside the fits: of Great Expectations 90 MB.
        """
        if not self.make_room(table):
            return pkgutil.resolve_name(function)(**keywords)
        with RankPool(preload=()) as pool:
            return pool.call(function, **keywords)

    def make_room(self, table: Path) -> bool:
        """Return freed memory before a step that reads a table; of a large one also that of the idle fork server.

        The fork server, which takes a quarter of a gigabyte, starts again where it is needed. Returns whether the table
        is large.
        """
        import pyarrow.parquet as pq

        from models.sources.mapped import LARGE_CELLS

        memory.release()
        metadata = pq.read_metadata(table)
        is_large = metadata.num_rows * metadata.num_columns >= LARGE_CELLS
        if is_large:
            self.rank_pool.close()
        return bool(is_large)

    def _begin(self, name: str) -> None:
        """Record and report that a step begins."""
        self.at = name
        if self.lease:
            save_step(self.state, self.id, name, self.lease)
        self.report.step(name, "run")

    def _save(self, record: StepRecord, *, is_new: bool) -> None:
        """Count a step as done; upload its files first if there is an object store that may lack them."""
        store, before = self.step_cache.store, record.snapshot
        if store and not before:
            record = store.upload(record, self.place(record), self.epoch)
        if is_new or record.snapshot != before:
            self.step_cache.records.save(record, self.lease)
        self.done[record.step] = record
        if record.step in PAGE_OF_STEP:
            name = PAGE_OF_STEP[record.step]
            source = self.place(record) / f"{name}.html"
            keep_page(self.state, self.id, name, source, self.epoch, record.loop_id)
        if store and is_new and record.step in TRAINING_STEPS:
            store.checkpoints(self.place(record)).forget(self.epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the loop's lease, which is in the name of all that it writes at the object store; 0 without."""
        return self.lease.epoch if self.lease else 0

    def confirm(self) -> None:
        """Check that this process still runs the loop, before an act that others see, such as a promotion.

        Raises:
            LeaseLostError: Another process has taken over the loop.
        """
        if self.lease:
            self.lease.confirm()

    def check(self, connection: Connection) -> None:
        """Check in the transaction of a visible act that this process still runs the loop.

        Raises:
            LeaseLostError: Another process has taken over the loop.
        """
        if self.lease:
            self.lease.check(connection)

    def work(self, step: str, key: str) -> Path:
        """Return the work folder of a step and key, the same at every attempt; create it if needed."""
        folder = self.step_cache.work(step, key)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def place(self, record: StepRecord) -> Path:
        """Return the work folder of a record."""
        return self.step_cache.work(record.step, record.key)
