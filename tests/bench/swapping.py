"""Swaps under load: promotions one after the other while callers never pause."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from models.files import read_json
from tasks.host.workspace import Workspace
from tests.callers import Callers
from tests.serving import crown, live_server


def swaps_under_load(root: Path, num_swaps: int = 100, workers: int = 2, callers: int = 4) -> dict[str, float]:
    """Promote three versions in turn, so that each has to be loaded anew, and see what callers heard meanwhile.

    Args:
        root: A folder of its own for the workspace.
        num_swaps: Promotions.
        workers: Of the server.
        callers: Connections that ask without pause.

    Returns:
        `swaps`, `answers`, `failed`; `late`: requests that began after somebody heard the new version and were
        answered by the old one; `seconds`: median from the write in the registry to the swap; `slowest`.
    """
    workspace = Workspace(root)
    workspace.make()
    path = workspace.state / "projects" / "tiny" / "serving" / "release.json"
    for number in ("3", "2", "1"):
        crown(workspace, "tiny", number)
    moves, took = [], []
    with live_server(workspace, "tiny", arguments=("--workers", str(workers)), cold=True) as server:
        with Callers(server, callers) as asking:
            for swap in range(num_swaps):
                number = str((swap + 1) % 3 + 1)
                moves.append((time.monotonic(), number))
                crown(workspace, "tiny", number)
                server.wait_until(lambda number=number: read_json(path).get("stable") == number)
                took.append(time.monotonic() - moves[-1][0])
        seconds = {"seconds": statistics.median(took), "slowest": max(took)}
        late = asking.late(moves)
        return {"swaps": num_swaps, "answers": len(asking.all), "failed": asking.failed, "late": late, **seconds}
