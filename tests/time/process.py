"""What a process of another machine does: it enters its namespace, and acts until it pauses, ends or is refused."""

from __future__ import annotations

import json

from models.errors import LooplineError
from tasks.host import leases, stores
from tests.time import acts
from tests.time.machines import enter_namespace
from tests.time.pausing import pause_at
from tests.time.points import Point

REFUSED = "refused: "
DONE = "done"


def main(arguments: str) -> None:
    """Act as `Machine.process` says, and print the end: DONE, or REFUSED with the message."""
    options = json.loads(arguments)
    if options["is_apart"]:
        enter_namespace()
    else:
        import os

        print(os.getpid(), flush=True)
    leases.TTL_S, leases.RENEW_S = options["ttl_s"], options["ttl_s"] / 3
    workspace = stores.open_workspace()
    if options["point"]:
        pause_at(Point(*options["point"]))
    try:
        getattr(acts, options["act"])(workspace, **options.get("arguments", {}))
    except LooplineError as error:
        print(f"{REFUSED}{type(error).__name__}: {error}", flush=True)
    else:
        print(DONE, flush=True)
