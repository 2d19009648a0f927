"""WAL ingest: moves segments into the prediction log and the label store, each row exactly once.

The log stores how far each segment was moved, in the same commit as the moved rows: after a kill between any two steps,
the next move continues from there. Labels need no such offset: repeated labels add nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.serving.framing import is_torn, unframed
from tasks.host.locks import held
from tasks.state import journal
from tasks.state.predictions import prediction_log
from tasks.state.segments import KINDS, Segment, segments, segments_folder, sweep, waiting

PIECE_BYTES = 1 << 22
"""Bytes of the records that are moved in one append; moving uses a few times as much memory."""
PATIENCE_S = 60.0

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


def waits(state: Path) -> bool:
    """Return whether there is something to move, or to delete."""
    return any(waiting(segments_folder(state, kind)) for kind in KINDS)


def move_held(state: Path) -> int:
    """Do the work of `move` for a caller that holds the lock of `moving`."""
    return _move_predictions(state) + _move_labels(state)


@contextlib.contextmanager
def moving(state: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock for moving and merging in a project.

    Raises:
        StoreError: Another process is still moving.
    """
    with held(state / "serving" / "moving.lock", lambda: f"{state}: another process moves its predictions", patience_s):
        yield


@dataclass
class _SegmentBatch:
    """Records of some segments that are moved together; how far each was read, and which were read to their end."""

    payloads: list[bytes] = field(default_factory=list)
    size: int = 0
    offsets: dict[Segment, int] = field(default_factory=dict)
    ended: list[Segment] = field(default_factory=list)


def _move_predictions(state: Path) -> int:
    if not waiting(segments_folder(state, "predictions")):
        return 0
    from models.feedback.log_rows import prediction_rows

    log = prediction_log(state)
    odd = state / "serving" / "odd.jsonl"

    def add(records: list[Any], offsets: Mapping[str, int]) -> int:
        try:
            table = prediction_rows(records)
        except Exception:  # noqa: BLE001 - one bad record must not block all later records
            table = prediction_rows([record for record in records if _is_sound(prediction_rows, record, odd)])
        log.append(table, offsets=offsets)
        return int(table.num_rows)

    folder = segments_folder(state, "predictions")
    return _move(folder, log.offsets([segment.name for segment in segments(folder)]), add)


def _is_sound(rows_of: Callable[[list[Any]], Any], record: Any, odd: Path) -> bool:
    """Return whether a record can be converted to rows; otherwise save it in a file for a person to check."""
    try:
        rows_of([record])
    except Exception:  # noqa: BLE001 - see above
        _log.exception("%s: a record that is no prediction is kept there and left out of the log", odd)
        journal.append(odd, {"record": record})
        return False
    return True


def _move_labels(state: Path) -> int:
    if not waiting(segments_folder(state, "labels")):
        return 0
    from models.feedback.log_rows import label_rows
    from tasks.state.add_labels import add_labels

    def add(records: list[Any], _: Mapping[str, int]) -> int:
        return add_labels(state, label_rows(records))[1]["taken"]

    return _move(segments_folder(state, "labels"), {}, add)


def _move(folder: Path, known: Mapping[str, int], add: Callable[[list[Any], Mapping[str, int]], int]) -> int:
    """Read each segment on, add its records, store the offset, and delete segments that are finished."""
    import orjson

    moved = 0
    sweep(folder)
    for piece in _pieces(folder, known):
        if piece.payloads:
            offsets = {segment.name: offset for segment, offset in piece.offsets.items()}
            moved += add([orjson.loads(payload) for payload in piece.payloads], offsets)
        for segment, offset in piece.offsets.items():
            segment.note_moved(offset)
        for segment in piece.ended:
            _end(segment, piece.offsets[segment])
    return moved


def _pieces(folder: Path, known: Mapping[str, int]) -> Iterator[_SegmentBatch]:
    piece = _SegmentBatch()
    for segment in segments(folder):
        start, is_left = max(known.get(segment.name, 0), segment.moved), segment.is_left
        with contextlib.suppress(FileNotFoundError):
            content = segment.read(start)
            piece.offsets[segment] = start
            for offset, payload in unframed(content):
                piece.payloads.append(payload)
                piece.size += len(payload)
                piece.offsets[segment] = start + offset
                if piece.size >= PIECE_BYTES:
                    yield piece
                    piece = _SegmentBatch(offsets={segment: start + offset})
            if is_left:
                piece.ended.append(segment)
    yield piece


def _end(segment: Segment, offset: int) -> None:
    """Delete a segment that has no writer any more; a damaged one is kept for a person to check."""
    if is_torn(segment.read(offset)):
        segment.remove()
        return
    aside = segment.set_aside()
    _log.error("%s: damaged from byte %d on: what came before it is in the log, the file is kept", aside, offset)
