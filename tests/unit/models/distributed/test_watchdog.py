import os
import re
import signal
import threading
import time

import pytest
from torch.distributed import TCPStore

from models.distributed.watchdog import Heartbeat, Watchdog, who_is_behind
from tests.ranks import on_ranks
from tests.wide import wide

SILENCE_S = 1.5


def said(rank, step, where="net.py:3 in forward"):
    return Heartbeat(rank, step, 9, 5.0, where)


@pytest.mark.parametrize(
    ("now", "silent", "expected"),
    [
        (
            [said(0, 40), said(1, 40)],
            {1},
            r"^rank 1 is behind: it says nothing \(stopped.*since step 41; rank 0 waits at step 41 \(net.py:3",
        ),
        (
            [said(0, 41), said(1, 39, where="net.py:7 in slow")],
            set(),
            r"^rank 1 is behind: at step 40 \(net.py:7 in slow\); rank 0 waits at step 42",
        ),
        ([said(0, 5)], set(), "^rank 1 is behind: it never said anything; rank 0 waits at step 6"),
        (
            [said(0, 5), said(1, 5, where="b.py:2 in g")],
            set(),
            r"^all ranks wait.*rank 0 waits at step 6.*rank 1 waits at step 6 \(b.py:2 in g\)",
        ),
    ],
)
def test_the_message_names_the_rank_that_is_behind(now, silent, expected):
    assert re.search(expected, who_is_behind(now, silent, 2))


@pytest.mark.parametrize("stopped", [0, wide(1)])
def test_a_stopped_rank_is_named_by_the_other(tmp_path, stopped):
    port, pids = tmp_path / "port", [tmp_path / f"pid-{rank}" for rank in range(2)]

    def work(world):
        (tmp_path / f"pid-{world.rank}").write_text(str(os.getpid()))
        told, heard = [], threading.Event()

        def on_hang(behind, stack):
            told.append((behind, stack))
            heard.set()
            if world.rank != stopped:
                os.kill(int(pids[stopped].read_text()), signal.SIGCONT)

        store = meet(world, port)
        watchdog = Watchdog(store, world.rank, 2, SILENCE_S, on_hang)
        watchdog.beat(7)
        time.sleep(SILENCE_S / 3)
        world.gather(None)
        if world.rank == stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
            return None
        assert heard.wait(30)
        watchdog.end()
        return told

    first, second = on_ranks(2, tmp_path, work)
    ((behind, stack),) = first or second
    assert behind.startswith(f"rank {stopped} is behind: it says nothing")
    assert "heard.wait" in stack


def test_ranks_that_go_on_or_wait_for_the_caller_are_left_alone(tmp_path):
    def work(world):
        told = []
        watchdog = Watchdog(meet(world, tmp_path / "port"), world.rank, 2, SILENCE_S, lambda *words: told.append(words))
        watchdog.beat(1)
        if world.is_first:
            with watchdog.excused():
                time.sleep(1.5 * SILENCE_S)
            for _ in range(13):
                time.sleep(SILENCE_S / 10)
                watchdog.beat()
        world.gather(None)
        watchdog.end()
        world.gather(None)
        return told

    assert on_ranks(2, tmp_path, work) == [[], []]


def meet(world, port):
    """A store that rank 0 hosts."""
    if world.is_first:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port.write_text(str(store.port))
    world.gather(None)
    return store if world.is_first else TCPStore("127.0.0.1", int(port.read_text()), is_master=False)
