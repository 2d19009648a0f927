"""A round of the soak: several processes act at once, and each is stopped once, at a drawn moment for a drawn time."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.time.machines import SHORT_TTL_S, Machine, Process
from tests.time.points import Point
from tests.time.process import DONE, REFUSED

LONG_TTL_S = 30.0
"""How long a lease lives in life: for the processes of a round in which a writer stalls for longer."""
STALL_S = 45.0
_SPANS = ((0.0, 0.5), (0.5, 1.5), (1.5, 4.0))
"""Pauses, in seconds: shorter than a lease of `SHORT_TTL_S`, about as long, and longer."""


class Part(NamedTuple):
    """What one process does in a round.

    Args:
        act: The name of an act of `acts.py`.
        arguments: Its arguments.
        point: Where it is stopped; None: `moment_s` after its start.
        begin_s: When it starts.
        moment_s: When it is stopped.
        pause_s: How long.
    """

    act: str
    arguments: Mapping[str, str]
    point: Point | None
    begin_s: float
    moment_s: float
    pause_s: float


class Ran(NamedTuple):
    """A part, and what its process printed."""

    part: Part
    lines: Sequence[str]

    @property
    def is_done(self) -> bool:
        """Whether it did what it was told."""
        return self.lines[-1] == DONE

    @property
    def is_refused(self) -> bool:
        """Whether it says why it did not: who has its lease, or that it was paused within a change."""
        reasons = "has taken it over", "has it", "ended this process's change", "the champion is version"
        return self.lines[-1].startswith(REFUSED) and any(reason in self.lines[-1] for reason in reasons)

    @property
    def epochs(self) -> list[int]:
        """The epochs of the loop's lease that it has had."""
        return [int(line.split()[1]) for line in self.lines if line.startswith("epoch ")]

    @property
    def notes(self) -> list[str]:
        """What it told a person."""
        return [line.removeprefix("note: ") for line in self.lines if line.startswith("note: ")]


def draw_part(random: random.Random, act: str, points: Sequence[Point], **arguments: str) -> Part:
    """Draw when a process starts, and when and for how long it is stopped; a third of them not at a point."""
    point = random.choice(points) if points and random.random() < 2 / 3 else None
    pause_s = random.uniform(*random.choice(_SPANS))
    return Part(act, arguments, point, random.uniform(0.0, 1.0), random.uniform(0.0, 1.0), pause_s)


def stalled_writer(random: random.Random) -> Part:
    """Return a writer that is stopped in its transaction for longer than a lease lives."""
    part = draw_part(random, "rest_in_transaction", ())
    return part._replace(pause_s=STALL_S)


def run_parts(parts: Sequence[Part], machines: Sequence[Machine], ttl_s: float = SHORT_TTL_S) -> list[Ran]:
    """Start each part on its machine, stop it, let it go on, and wait for its end; return them in their order."""
    began = time.monotonic()
    with contextlib.ExitStack() as processes:
        threads = []
        ran: dict[int, Ran] = {}
        for index, part in sorted(enumerate(parts), key=lambda pair: pair[1].begin_s):
            time.sleep(max(0.0, began + part.begin_s - time.monotonic()))
            process = processes.enter_context(
                machines[index].process(part.act, part.point, ttl_s=ttl_s, arguments=dict(part.arguments))
            )
            ran[index] = Ran(part, process.lines)
            threads.append(threading.Thread(target=_stop_once, args=(process, part)))
            threads[-1].start()
        for thread in threads:
            thread.join()
    return [ran[index] for index in sorted(ran)]


def _stop_once(process: Process, part: Part) -> None:
    """Stop a process at its moment, unless it has ended by then."""
    with contextlib.suppress(AssertionError):  # it never comes to the point
        if part.point:
            process.wait_at(part.point)
        else:
            time.sleep(part.moment_s)
            process.stop()
        time.sleep(part.pause_s)
    process.ended()
