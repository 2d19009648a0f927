"""WAL ingest: moves segments into the prediction log and the label store, each row exactly once.

The log stores how far each segment was moved, in the same commit as the moved rows: after a kill between any two steps,
the next move continues from there. Labels need no such offset: repeated labels add nothing.

With LOOPLINE_ROOT on S3, segments are moved into the log that all hosts share (`tasks/state/delta/shared_log.py`), and
`receive` copies from there into this machine's log and label store, by the same rules.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from models.errors import StoreError
from models.files import read_json, write_bytes, write_json
from models.serving.framing import is_torn, unframed
from tasks.host.locks import held
from tasks.state import journal
from tasks.state.delta.shared_log import MOST_FILES, SharedLog, shared_log
from tasks.state.predictions import prediction_log
from tasks.state.segments import KINDS, Segment, segments, segments_folder, sweep, waiting

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.state.delta.delta_log import DeltaLog

PIECE_BYTES = 1 << 22
"""Bytes of the records that are moved in one append; moving uses a few times as much memory."""
LABELS_OF_RECORD = 10_000
PATIENCE_S = 60.0
SHARED = "shared"
"""The application transactions of the local log with the last append that it has, by table: `shared:TABLE`."""
RECEIVED = "received.json"
HOST = "host"
"""The file with the name under which this disk's segments are known in the shared log: a machine's may change."""

_log = logging.getLogger("loopline.compact")


def move(state: Path, patience_s: float = PATIENCE_S) -> int:
    """Move all records that servers wrote so far; return how many rows were added. Costs a listing if nothing waits.

    Args:
        state: The project's state folder.
        patience_s: How long to wait for another process that is moving records.

    Raises:
        StoreError: The disk is full, or another process is still moving; rows moved so far stay moved.
    """
    if not waits(state):
        return 0
    with moving(state, patience_s):
        return move_held(state)


def receive(state: Path, patience_s: float = PATIENCE_S) -> int:
    """Move all records of this machine, then add what other hosts have moved; return how many rows were added here.

    Who reads the log calls this. Without a shared log it is `move`.

    Raises:
        StoreError: As for `move`; or the shared log cannot be reached: rows added so far stay.
    """
    if shared_log(state) is None:
        return move(state, patience_s)
    with moving(state, patience_s):
        return receive_held(state)


def receive_held(state: Path) -> int:
    """Do the work of `receive` for a caller that holds the lock of `moving`."""
    moved = move_held(state)
    shared = shared_log(state)
    return moved if shared is None else _receive(state, shared)


def waits(state: Path) -> bool:
    """Return whether there is something to move, or to delete."""
    return any(waiting(segments_folder(state, kind)) for kind in KINDS)


def move_held(state: Path) -> int:
    """Do the work of `move` for a caller that holds the lock of `moving`."""
    shared = shared_log(state)
    if shared is not None:
        return sum(_share(state, kind, shared) for kind in KINDS)
    return _move_predictions(state) + _move_labels(state)


@contextlib.contextmanager
def moving(state: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock for moving and merging in a project.

    Raises:
        StoreError: Another process is still moving.
    """
    with held(state / "serving" / "moving.lock", lambda: f"{state}: another process moves its predictions", patience_s):
        yield


def share_labels(state: Path, labels: pa.Table) -> None:
    """Add labels that a person brought, and that are new, to the log that all hosts share, if there is one.

    Args:
        state: The project's state folder.
        labels: As for `add_labels`, which adds them on this machine.

    Raises:
        StoreError: The shared log cannot be reached; nothing was added.
    """
    from tasks.state.add_labels import new_labels

    shared = shared_log(state)
    if shared is None or not labels.num_rows:
        return
    rows = new_labels(state, labels)[0].select(["id", "label", "at", "by"])
    rows = rows.set_column(2, "at", rows.column("at").cast("int64"))
    records = []
    for start in range(0, rows.num_rows, LABELS_OF_RECORD):
        columns = [column.to_pylist() for column in rows.slice(start, LABELS_OF_RECORD).columns]
        for (labelled_at, giver), same in groupby(zip(*columns, strict=True), itemgetter(2, 3)):
            ids, values = zip(*((row[0], row[1]) for row in same), strict=True)
            records.append(orjson.dumps({"ids": ids, "labels": values, "at": labelled_at, "by": giver}).decode())
    shared.add("labels", records, {f"person:{uuid.uuid4()}": 1})


def _share(state: Path, kind: Literal["predictions", "labels"], shared: SharedLog) -> int:
    """Move segments into the shared log; return how many records."""
    folder = segments_folder(state, kind)
    if not waiting(folder):
        return 0
    host = _host(state)

    def add(records: list[Any], offsets: Mapping[str, int]) -> int:
        named = {_source(host, name): offset for name, offset in offsets.items()}
        number = shared.add(kind, [orjson.dumps(record).decode() for record in records], named)
        if number and number % MOST_FILES == 0:  # one of the hosts, at its turn
            with contextlib.suppress(StoreError):
                shared.compact()
        return len(records)

    names = [segment.name for segment in segments(folder)]
    stored = shared.offsets([_source(host, name) for name in names])
    return _move(folder, {name: stored[_source(host, name)] for name in names}, add)


def _host(state: Path) -> str:
    """Return the name of this disk in the shared log; the first call makes it up. Call it within `moving`."""
    path = state / "serving" / HOST
    if not path.exists():
        write_bytes(path, uuid.uuid4().hex.encode())
    return path.read_text()


def _source(host: str, segment: str) -> str:
    """Return the name of a segment among those of all hosts."""
    return f"{host}/{segment}"


def _receive(state: Path, shared: SharedLog) -> int:
    """Copy what is new in the shared log; a commit of the prediction log has the append that it reaches."""
    log, note = prediction_log(state), state / "serving" / RECEIVED
    cursor = read_json(note)
    added = 0
    for records in shared.records(int(cursor.get("append", 0)), str(cursor.get("table", ""))):
        source = f"{SHARED}:{records.table}"
        moved = log.offsets([source])[source]
        new = [orjson.loads(text) for number, text in records.by_kind.get("predictions", []) if number > moved]
        added += _add_predictions(state, log, new, {source: records.upto}) if new else 0
        labels = [orjson.loads(text) for _, text in records.by_kind.get("labels", [])]
        added += _add_labels(state, labels) if labels else 0
        # a lost note costs time: `done` and the labels themselves decide
        write_json(note, {"append": records.upto, "table": records.table})
    return added


def _move_predictions(state: Path) -> int:
    folder = segments_folder(state, "predictions")
    if not waiting(folder):
        return 0
    log = prediction_log(state)  # one for all: opening a table costs more than reading on in it
    stored = log.offsets([segment.name for segment in segments(folder)])
    return _move(folder, stored, lambda records, offsets: _add_predictions(state, log, records, offsets))


def _add_predictions(state: Path, log: DeltaLog, records: list[Any], offsets: Mapping[str, int]) -> int:
    from models.feedback.log_rows import prediction_rows

    table = _rows_of(prediction_rows, records, state / "serving" / "odd.jsonl")
    if table is None:
        return 0
    log.append(table, offsets=offsets)
    return int(table.num_rows)


def _add_labels(state: Path, records: list[Any]) -> int:
    from models.feedback.log_rows import label_rows
    from tasks.state.add_labels import add_labels

    table = _rows_of(label_rows, records, state / "serving" / "odd.jsonl")
    return 0 if table is None else add_labels(state, table)[1]["taken"]


def _rows_of(rows_of: Callable[[list[Any]], pa.Table], records: list[Any], odd: Path) -> pa.Table | None:
    """Return the rows of all records that can be converted; None if there is none: they must not block later ones."""
    try:
        return rows_of(records)
    except Exception:  # noqa: BLE001 - whatever is wrong with a record, the others are needed
        sound = [record for record in records if _is_sound(rows_of, record, odd)]
        return rows_of(sound) if sound else None


def _is_sound(rows_of: Callable[[list[Any]], Any], record: Any, odd: Path) -> bool:
    """Return whether a record can be converted to rows; otherwise save it in a file for a person to check."""
    try:
        rows_of([record])
    except Exception:  # noqa: BLE001 - see above
        _log.exception("%s: a record that is not valid is kept there and left out of the log", odd)
        journal.append(odd, {"record": record})
        return False
    return True


def _move_labels(state: Path) -> int:
    if not waiting(segments_folder(state, "labels")):
        return 0
    return _move(segments_folder(state, "labels"), {}, lambda records, _: _add_labels(state, records))


def _move(folder: Path, known: Mapping[str, int], add: Callable[[list[Any], Mapping[str, int]], int]) -> int:
    """Read each segment on, add its records, store the offset, and delete segments that are finished."""
    payloads: list[bytes] = []
    offsets: dict[Segment, int] = {}
    ended: list[Segment] = []

    def add_read() -> int:
        """Move what was read of some segments: of small ones all that waits, of a large one a piece."""
        named = {segment.name: offset for segment, offset in offsets.items()}
        moved = add([orjson.loads(payload) for payload in payloads], named) if payloads else 0
        for segment, offset in offsets.items():
            segment.note_moved(offset)
        for segment in ended:
            _end(segment, offsets[segment])
        for read in (payloads, offsets, ended):
            read.clear()
        return moved

    moved = size = 0
    sweep(folder)
    for segment in segments(folder):
        start, is_left = max(known.get(segment.name, 0), segment.moved), segment.is_left
        try:
            content = segment.read(start)
        except FileNotFoundError:
            continue
        offsets[segment] = start
        for offset, payload in unframed(content):
            payloads.append(payload)
            size += len(payload)
            offsets[segment] = start + offset
            if size >= PIECE_BYTES:
                moved, size = moved + add_read(), 0
                offsets[segment] = start + offset
        if is_left:
            ended.append(segment)
    return moved + add_read()


def _end(segment: Segment, offset: int) -> None:
    """Delete a segment that has no writer any more; a damaged one is kept for a person to check."""
    if is_torn(segment.read(offset)):
        segment.remove()
        return
    aside = segment.set_aside()
    _log.error("%s: damaged from byte %d on: what came before it is in the log, the file is kept", aside, offset)
