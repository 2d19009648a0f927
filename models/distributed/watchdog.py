"""The watchdog: each rank reports its progress, so that an error can name the rank that delays the others.

If a rank makes no progress, in its own code or in a stopped process, its peers wait inside a collective, whose timeout
names no rank. The watchdog's threads, which no collective blocks, send heartbeats for the rank and check the others.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from torch.distributed import DistError
from torch.distributed.distributed_c10d import Store

OnHang = Callable[[str, str], None]

# Checks within the time that a rank may be without progress.
_LOOKS = 6
_SILENT = "it says nothing (stopped, starved, or its machine is gone)"


@dataclass(frozen=True)
class Heartbeat:
    """The heartbeat of one rank.

    Attributes:
        rank: The rank that sent it.
        step: The optimiser steps that the rank has done.
        count: Number of this heartbeat; if it no longer rises, the rank cannot send any more.
        still_s: Seconds since the last step or other progress.
        where: The current line of code.
        is_excused: True while the rank waits for the caller, which is allowed.
    """

    rank: int
    step: int
    count: int
    still_s: float
    where: str
    is_excused: bool = False


class Watchdog:
    """Sends the heartbeats of one rank and checks those of its peers.

    Args:
        store: The store of all ranks; rank 0 may host it.
        rank: This rank.
        size: Number of ranks.
        silence_s: How long a rank may be without progress after its first step.
        on_hang: Called from a thread with a message that names the ranks behind, and this rank's stack.
    """

    def __init__(self, store: Store, rank: int, size: int, silence_s: float, on_hang: OnHang) -> None:
        # A separate connection; the store itself is referenced too, because the host's store object owns the server.
        self._store, self._met = store.clone(), store  # type: ignore[attr-defined]
        self._rank, self._size = rank, size
        self._silence_s, self._on_hang = silence_s, on_hang
        self._step, self._since, self._is_excused, self._count = 0, time.perf_counter(), False, 0
        self._main = threading.get_ident()
        self._heartbeats: list[Heartbeat] = []
        self._heard_at = time.perf_counter()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._talk, self._look)]
        for thread in self._threads:
            thread.start()

    def beat(self, step: int | None = None) -> None:
        """Record progress of this rank, with `step` optimiser steps done. Cost: 0.1 us."""
        if step is not None:
            self._step = step
        self._since = time.perf_counter()

    @contextmanager
    def excused(self) -> Iterator[None]:
        """Mark this rank as excused inside `with`, while it waits for a process that is no rank."""
        self._is_excused = True
        try:
            yield
        finally:
            self.beat()
            self._is_excused = False

    def end(self) -> None:
        """Stop the heartbeats and the checks."""
        self._ended.set()
        for thread in self._threads:
            thread.join(self._silence_s)

    def _talk(self) -> None:
        """Send heartbeats and read those of the peers, in a separate thread: a stopped store process never answers."""
        while not self._ended.is_set():
            with contextlib.suppress(DistError):
                self._store.set(f"pulse/{self._rank}", json.dumps(asdict(self._say())))
                self._heartbeats = self._hear()
                self._heard_at = time.perf_counter()
            self._ended.wait(self._silence_s / _LOOKS)

    def _look(self) -> None:
        spoke: dict[int, tuple[int, float]] = {}
        while not self._ended.wait(self._silence_s / _LOOKS):
            mine, heartbeats, now = self._say(), self._heartbeats, time.perf_counter()
            for heartbeat in heartbeats:
                if heartbeat.rank not in spoke or spoke[heartbeat.rank][0] != heartbeat.count:
                    spoke[heartbeat.rank] = (heartbeat.count, now)
            if not mine.step or mine.still_s < self._silence_s or mine.is_excused:
                continue
            # Rank 0 hosts the store: if it is stopped or its machine is lost, no rank can read the store.
            is_cut_off = now - self._heard_at > self._silence_s / 2
            silent = {rank for rank, (_, moment) in spoke.items() if now - moment > self._silence_s / 2}
            speaking = [
                heartbeat for heartbeat in heartbeats if heartbeat.rank not in silent and heartbeat.rank != self._rank
            ]
            if is_cut_off or not any(
                heartbeat.is_excused or heartbeat.still_s < self._silence_s / 2 for heartbeat in speaking
            ):
                stack = traceback.format_stack(sys._current_frames().get(self._main))
                waiting = f"rank {mine.rank} waits for it at step {mine.step + 1} ({mine.where})"
                cut_off = f"rank 0 is behind: {_SILENT}; {waiting}"
                behind = cut_off if is_cut_off else who_is_behind(heartbeats, silent, self._size)
                self._on_hang(behind, "".join(stack))
                return

    def _say(self) -> Heartbeat:
        self._count += 1
        frame = sys._current_frames().get(self._main)
        lines = traceback.extract_stack(frame, limit=None) if frame is not None else []
        last = next((frame for frame in reversed(lines) if "/torch/" not in frame.filename), None)
        where = f"{Path(last.filename).name}:{last.lineno} in {last.name}" if last else "an unknown place"
        return Heartbeat(
            self._rank, self._step, self._count, time.perf_counter() - self._since, where, self._is_excused
        )

    def _hear(self) -> list[Heartbeat]:
        keys = [f"pulse/{rank}" for rank in range(self._size)]
        stored_keys = [key for key in keys if self._store.check([key])]
        return [Heartbeat(**json.loads(content)) for content in self._store.multi_get(stored_keys)]


def who_is_behind(heartbeats: list[Heartbeat], silent: set[int], size: int) -> str:
    """Return a message that names the ranks that delay the others, from the last heartbeats and the silent ranks."""
    absent = sorted(set(range(size)) - {heartbeat.rank for heartbeat in heartbeats})
    lines = [f"rank {rank} is behind: it never said anything" for rank in absent]
    lines += [
        f"rank {heartbeat.rank} is behind: {_SILENT} since step {heartbeat.step + 1}"
        for heartbeat in heartbeats
        if heartbeat.rank in silent
    ]
    speaking = [heartbeat for heartbeat in heartbeats if heartbeat.rank not in silent]
    late = [
        heartbeat
        for heartbeat in speaking
        if heartbeat.step == min(other_heartbeat.step for other_heartbeat in speaking)
    ]
    if not lines and len(late) < len(speaking):
        lines = [
            f"rank {heartbeat.rank} is behind: at step {heartbeat.step + 1} ({heartbeat.where})" for heartbeat in late
        ]
        speaking = [heartbeat for heartbeat in speaking if heartbeat not in late]
    lines = lines or [
        "all ranks wait although each is alive: one of them waits for a collective that the others do not call"
    ]
    return "; ".join(
        [
            *lines,
            *(
                f"rank {heartbeat.rank} waits at step {heartbeat.step + 1} ({heartbeat.where})"
                for heartbeat in speaking
            ),
        ]
    )
