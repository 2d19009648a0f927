"""Ranks for the tests of a part of the engine: clean processes that meet over gloo on this machine's CPU.

Whole jobs are trained by the product's rank pool (the fixture `pool` of tests/integration). It takes a job, but a test
of the checkpoints, the watchdog or a session calls that part on each rank by a closure: so these have processes of
their own.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models.distributed.world import World
from tests.clean_process import CleanProcess


def on_ranks(size: int, place: Path, work: Callable[[World], Any]) -> list[Any]:
    """What `work` gives on each of `size` ranks, in their order; an assertion that names what a rank raised.

    Args:
        size: How many ranks.
        place: A folder of this test's own; ranks meet by a file in it.
        work: Called in clean processes (`CleanProcess`), so a patch of the test's own process is not seen in it.
    """
    folder = place / f".ranks-{len(list(place.glob('.ranks-*')))}"
    with contextlib.ExitStack() as ends:
        ranks = []
        for rank in range(size):
            call = functools.partial(_live, World(rank, size), folder / "meeting", work)
            ranks.append(CleanProcess(folder / str(rank), call))
            ends.callback(ranks[-1].kill)
        results, errors = [], []
        for rank in ranks:
            try:
                results.append(rank.result())
            except AssertionError as error:
                errors.append(str(error))
        assert not errors, "\n".join(errors)
        return results


def _live(world: World, meeting: Path, work: Callable[[World], Any]) -> Any:
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=world.rank,
        world_size=world.size,
        timeout=datetime.timedelta(seconds=30),
    )
    result = work(world)
    with contextlib.suppress(RuntimeError):  # a peer that has failed was ended
        torch.distributed.barrier()
    return result
