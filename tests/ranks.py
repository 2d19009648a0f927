"""Ranks for the tests of a part of the engine: forked processes that meet over gloo on this machine's CPU.

Whole jobs are trained by the product's rank pool (the fixture `pool` of tests/integration). It takes a job, but a test
of the checkpoints, the watchdog or a session calls that part on each rank by a closure: so these are forked.
"""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import pickle
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimiser and the first sharding import it: once, before the ranks are forked

from models.distributed.world import World

TIMEOUT_S = 60


def on_ranks(size: int, place: Path, work: Callable[[World], Any]) -> list[Any]:
    """What `work` gives on each of `size` ranks, in their order; an assertion that names what a rank raised.

    Args:
        size: How many ranks.
        place: A folder of this test's own; ranks meet by a file in it.
        work: Called in forked children, so it may be a closure; gives something picklable.
    """
    place.mkdir(exist_ok=True)
    meeting = place / f".meeting-{len(list(place.glob('.meeting-*')))}"
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    children = [
        context.Process(target=_live, args=(World(rank, size), meeting, work, theirs))
        for rank, (_, theirs) in enumerate(pipes)
    ]
    for child in children:
        child.start()
    try:
        told = [_heard(ours, child) for (ours, _), child in zip(pipes, children, strict=True)]
    finally:
        for child in children:
            child.kill()
            child.join()
    errors = [value for kind, value in told if kind == "error"]
    assert not errors, "\n".join(errors)
    return [value for _, value in told]


def _heard(ours: Connection, child: Any) -> tuple[str, Any]:
    wait([ours, child.sentinel], TIMEOUT_S)
    if not ours.poll():
        return "error", f"nothing was said; exit code {child.exitcode}"
    kind, value = pickle.loads(ours.recv_bytes())
    return kind, value


def _live(world: World, meeting: Path, work: Callable[[World], Any], pipe: Connection) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=world.rank,
        world_size=world.size,
        timeout=datetime.timedelta(seconds=30),
    )
    try:
        told = ("value", work(world))
    except BaseException as error:
        told = ("error", "".join(traceback.format_exception(error)))
    # Not `send`, which would leave tensors in memory that goes with this process.
    pipe.send_bytes(pickle.dumps(told))
    with contextlib.suppress(RuntimeError):  # a peer that has failed was ended
        torch.distributed.barrier()
