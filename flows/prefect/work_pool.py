"""The work pool of a workspace: made, given its type and job template, and replaced if its type changes."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from models.errors import StoreError, UsageError
from models.launch import launched
from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.prefect.flow_runs import PAGE, online_workers, open_runs
from tasks.prefect.pods import job_template
from tasks.prefect.worker import MOST_RUNS, pool_environment
from tasks.ranks.places import find_pool_place

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import WorkPool, WorkQueue
    from prefect.client.schemas.responses import DeploymentResponse

OTHERS = "default"  # the queue that Prefect makes in each pool


def make_pool(client: SyncPrefectClient, workspace: Workspace, pool: str, note: Callable[[str], None]) -> bool:
    """Create or update the work pool, whose environment leads flow runs to the workspace; return whether it is new.

    Raises:
        StoreError: The pool has another type, and Prefect's server did not remove it.
        UsageError: The pool has another type, and workers of that type are online.
    """
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists

    kind, template = _template(workspace)
    description = f"Loops of {workspace.root}"
    changed: dict[str, Any] = {"description": description, "base_job_template": template}
    limited = {**changed, "concurrency_limit": MOST_RUNS}
    work_pool = _read_pool(client, pool)
    is_new = work_pool is None or work_pool.type != kind
    if work_pool and is_new:
        _remove_pool(client, work_pool, kind, note)
    if work_pool is None or is_new:
        with contextlib.suppress(ObjectAlreadyExists):  # a starting worker creates it too, without a limit
            client.create_work_pool(WorkPoolCreate(name=pool, type=kind, **limited))
            return True
        work_pool = client.read_work_pool(pool)
    client.update_work_pool(pool, WorkPoolUpdate(**(limited if work_pool.concurrency_limit is None else changed)))
    return is_new


def _read_pool(client: SyncPrefectClient, pool: str) -> WorkPool | None:
    from prefect.exceptions import ObjectNotFound

    with contextlib.suppress(ObjectNotFound):
        work_pool: WorkPool = client.read_work_pool(pool)
        return work_pool
    return None


def _remove_pool(client: SyncPrefectClient, work_pool: WorkPool, kind: str, note: Callable[[str], None]) -> None:
    """Remove a pool of another type, because Prefect cannot change the type; its runs are moved later.

    A worker would start the runs of the new pool wrongly, or make the pool again with the old type.
    """
    import httpx
    from prefect.exceptions import PrefectHTTPStatusError

    pool, api = work_pool.name, os.environ["PREFECT_API_URL"]
    types = f"work pool {pool}: its type is {work_pool.type}, and places.yaml makes it {kind}"
    if online := online_workers(api, pool):
        raise UsageError(
            f"{types}, but workers of the type {work_pool.type} are online: {', '.join(sorted(online))}: "
            "`loopline down` on each of their machines, then `loopline up` again (a worker that was killed counts "
            "as online for half a minute)"
        )
    running = open_runs(api, pool)
    try:
        client.delete_work_pool(pool)
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        raise StoreError(
            f"{types}, but Prefect's server did not remove it ({error}): no run is lost: `loopline up` again"
        ) from error
    note(f"work pool {pool}: its type is {kind} now and was {work_pool.type}")
    for run in running:
        note(f"{run}: it runs on, but is not taken up if it is killed: then cancel it in Prefect and start it again")


def attach(client: SyncPrefectClient, deployment: DeploymentResponse, pool: str) -> None:
    """Give a deployment whose pool was removed its queue in the new one."""
    from prefect.client.schemas.actions import DeploymentUpdate

    queue = deployment.work_queue_name or OTHERS
    if queue != OTHERS:
        make_queues(client, [queue], pool)
    client.update_deployment(deployment.id, DeploymentUpdate(work_pool_name=pool, work_queue_name=queue))


def _template(workspace: Workspace) -> tuple[str, dict[str, Any]]:
    """Return the work pool's type and base job template."""
    from prefect.workers.process import ProcessWorker

    if place := find_pool_place(workspace):
        return "kubernetes", job_template(workspace, place)
    template = ProcessWorker.get_default_base_job_template()
    variables = template["variables"]["properties"]
    variables["env"]["default"] = pool_environment(workspace)
    if not database.is_shared():  # else each machine's worker takes its own Python
        variables["command"]["default"] = shlex.join([sys.executable, *launched("prefect.engine")])
    return "process", template


def make_queues(client: SyncPrefectClient, names: Collection[str], pool: str) -> None:
    """Create the work queues that projects' loops lack; each runs one at a time, of whichever flow."""
    from prefect.exceptions import ObjectAlreadyExists

    queues: dict[str, WorkQueue] = {}
    while page := client.read_work_queues(work_pool_name=pool, limit=PAGE, offset=len(queues)):
        queues |= {queue.name: queue for queue in page}
    for name in names:
        if name not in queues:
            text = f"Loops of {name}: one at a time"
            with contextlib.suppress(ObjectAlreadyExists):  # another machine's `up` was faster
                client.create_work_queue(name, description=text, concurrency_limit=1, work_pool_name=pool)
        elif queues[name].concurrency_limit is None:  # Prefect itself created it, for `prefect deploy`
            client.update_work_queue(queues[name].id, concurrency_limit=1)
