"""The Delta table of a log: opened, read on and committed by delta-rs' public calls, wherever its files are.

The files are ours (`delta_files.written`): delta-rs keeps no order of rows and syncs nothing.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tasks.state.delta.delta_files import APPEND, LogPart
from tasks.state.delta.places import FIRST_COMMIT, MARKS, REPLACED_H, Place

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, PostCommitHookProperties
    from deltalake.transaction import AddAction, RemoveAction

REPLACED = "merge"
"""The application transaction that numbers the commits which take files away: delta-rs refuses no second removal."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 5 minutes",  # each opening lists all commits
    "delta.deletedFileRetentionDuration": f"interval {REPLACED_H} hours",
    "delta.setTransactionRetentionDuration": "interval 365 days",
}
_TRIES = 5

T = TypeVar("T")


class TakenError(Exception):
    """Another host made the commit with this number."""


class LogTable:
    """The table at one place; methods that change it are called within `place.writing()`."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._table: DeltaTable | None = None

    def read(self, read: Callable[[DeltaTable], T]) -> T | None:
        """Return what `read` returns for the table as it is now; None if there is no table yet.

        delta-rs reads commits and checkpoints when it needs them; another process may have deleted them by then.

        Raises:
            StoreError: The table cannot be read.
        """
        if self.place.is_newest(-1):
            return None
        from deltalake.exceptions import DeltaError, TableNotFoundError

        for attempt in range(_TRIES):
            try:
                return read(self._newest())
            except TableNotFoundError:  # it was removed meanwhile
                self._table = None
                return None
            except (DeltaError, OSError) as error:
                self._table, problem = None, error
            self.place.mend(problem, attempt)
        raise self.place.refused(problem) from problem

    def numbers(self, sources: Sequence[str]) -> list[int | None]:
        """Return the number of the last transaction of some applications; None of one that has none."""
        versions = self.read(lambda table: [table.transaction_version(source) for source in sources])
        return versions or [None] * len(sources)

    def schema(self) -> pa.Schema | None:
        """Return the schema of the table as Arrow's; None if there is no table."""
        return self.read(schema_of)

    def parts(self) -> list[LogPart]:
        """Return the files, oldest first."""
        return self.read(_parts) or []

    def parts_and_number(self) -> tuple[list[LogPart], int]:
        """Return the files, oldest first, and the number of the last commit that took files away."""
        return self.read(lambda table: (_parts(table), table.transaction_version(REPLACED) or 0)) or ([], 0)

    def declare(self, schema: pa.Schema, stored: pa.Schema | None) -> None:
        """Make the table, unless another host was first, or add columns that it does not have.

        Args:
            schema: The schema that the table has then.
            stored: The schema that it has; None if there is no table.

        Raises:
            TakenError: Another host committed at the same moment.
            StoreError: The table cannot be written.
        """
        import pyarrow as pa
        from deltalake import Schema

        present = set(stored.names) if stored is not None else set()
        new = [field for field in schema if field.name not in present]
        if not new:
            return
        if stored is None:
            self.place.begin(_first_commit(schema))
        elif table := self.read(_itself):
            fields = Schema.from_arrow(pa.schema(new)).fields
            with self._changing(table, "it has no new columns"):
                table.alter.add_columns(fields, post_commithook_properties=_no_hooks())
        self.place.settle()

    def commit(
        self,
        removed: Sequence[LogPart],
        added: Sequence[LogPart],
        marks: Mapping[str, int],
        sources: Mapping[str, int],
        schema: pa.Schema | None = None,
        *,
        is_same: bool = False,
    ) -> None:
        """Commit files and application transactions; on return they are stored.

        Args:
            removed: Files that leave the table.
            added: Files that come into it.
            marks: Transactions that stay, by application; the first is one more than the table has.
            sources: Transactions that are forgotten a year after they last changed.
            schema: Other types of columns: the added files replace all files.
            is_same: The added rows are those of the removed files.

        Raises:
            TakenError: Another host has the first transaction, or committed at the same moment.
            StoreError: The commit cannot be stored.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import RemoveAction

        table, now = self.read(_itself), time.time_ns() // 1_000_000
        if table is None or _is_taken(table, marks):
            raise TakenError
        transactions = [Transaction(name, version) for name, version in marks.items()]
        transactions += [Transaction(name, version, last_updated=now) for name, version in sources.items()]
        stored = schema_of(table) if schema is None else schema
        actions: list[AddAction | RemoveAction] = [_added(part, stored, now, not is_same) for part in added]
        actions += [RemoveAction(part.name, not is_same, now, part.size, {}) for part in removed]
        with self._changing(table, "nothing was committed"):
            table.create_write_transaction(
                actions,
                "append" if schema is None else "overwrite",
                stored,
                commit_properties=CommitProperties({MARKS: len(transactions)}, app_transactions=transactions),
                post_commithook_properties=_no_hooks(),
            )
        self.place.settle()

    def tidy(self) -> None:
        """Write a checkpoint; delete older commits after minutes, and unused files after an hour.

        Raises:
            StoreError: delta-rs cannot write or delete, such as on a full disk. The table stays as it was.
        """
        if table := self.read(_itself):
            with self._changing(table, "no checkpoint was made"):
                # First: so what was there before the new checkpoint stays, for readers that are opening the table, and
                # in case a loss of power damages the new checkpoint.
                table.cleanup_metadata()
                table.create_checkpoint()
                self.place.tidied(table.version())
                self.place.delete(self.unused(REPLACED_H))
        self._table = None  # it may refer to files that were deleted

    def unused(self, hours: int) -> list[str]:
        """Return the files that no commit names since some hours."""
        return self.read(lambda table: table.vacuum(hours, enforce_retention_duration=False, full=True)) or []

    def _newest(self) -> DeltaTable:
        from deltalake import DeltaTable

        if self._table is None:
            self.place.drop_torn_commit()
            self._table = DeltaTable(self.place.address, storage_options=self.place.options)
        elif not self.place.is_newest(self._table.version()):
            self._table.update_incremental()  # a commit of its own does not show in it either
        return self._table

    @contextlib.contextmanager
    def _changing(self, table: DeltaTable, problem: str) -> Iterator[None]:
        """Convert errors of delta-rs, which names a full disk and a lost race alike: after that, there is a commit."""
        from deltalake.exceptions import DeltaError

        before = table.version()
        try:
            yield
        except DeltaError as error:
            newest = self.read(_itself)
            if newest is not None and newest.version() > before:
                raise TakenError from error
            raise self.place.unwritten(problem, error) from error


def schema_of(table: DeltaTable) -> pa.Schema:
    """Return the schema of a table as Arrow's."""
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def _first_commit(schema: pa.Schema) -> bytes:
    """Return the commit that makes a table, which delta-rs makes in another folder.

    Of two hosts that make one table at once by delta-rs, both succeed, and a third is told that the protocol changed.
    """
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory() as folder:
        DeltaTable.create(folder, schema, configuration=_CONFIGURATION)
        return (Path(folder) / FIRST_COMMIT).read_bytes()


def _itself(table: DeltaTable) -> DeltaTable:
    return table


def _is_taken(table: DeltaTable, marks: Mapping[str, int]) -> bool:
    """Return whether the table has the first of some application transactions, or a later one."""
    return any((table.transaction_version(name) or 0) >= marks[name] for name in [*marks][:1])


def _parts(table: DeltaTable) -> list[LogPart]:
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    spans = [actions.column(f"{side}.{APPEND}").to_pylist() for side in ("min", "max")]
    times = [
        actions.column(f"{side}.at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        for side in ("min", "max")
    ]
    names = ("path", "num_records", "size_bytes")
    columns = (*spans, *(actions.column(name).to_pylist() for name in names), *times)
    return sorted(
        LogPart(first, last, name, rows, (begin, end), size)
        for first, last, name, rows, size, begin, end in zip(*columns, strict=True)
    )


def _added(part: LogPart, schema: pa.Schema, now: int, changes: bool) -> AddAction:
    import pyarrow as pa
    from deltalake.transaction import AddAction

    times: list[Any] = list(part.times)
    if pa.types.is_timestamp(schema.field("at").type):
        times = [
            (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds") for time_us in part.times
        ]
    spans = {"minValues": {APPEND: part.first, "at": times[0]}, "maxValues": {APPEND: part.last, "at": times[1]}}
    return AddAction(part.name, part.size, {}, now, changes, json.dumps({"numRecords": part.rows, **spans}))


def _no_hooks() -> PostCommitHookProperties:
    """Return that a commit makes no checkpoint and deletes nothing: `LogTable.tidy` does, and syncs in between."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
