"""Flow runs of dead processes: Prefect lists them as running, so the next worker continues or ends them.

A loop that is run again continues where it was: from the records of finished steps and the checkpoints of training.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from uuid import UUID

from models.errors import StoreError
from tasks.host import http_client
from tasks.host.server_access import API

FLOW_RUN = "PREFECT__FLOW_RUN_ID"  # in the environment of every process of a run that a worker started
WORKER_LABEL = "prefect.worker.name"  # set by the worker that submits a run
MOST_STARTS = 3
OPEN = ["RUNNING", "PENDING", "CANCELLING"]
ENDED = ["COMPLETED", "FAILED", "CANCELLED", "CRASHED"]
ANSWER_S = 30.0
BUSY = frozenset({429, 502, 503})
PAUSES_S = (0.2, 1.0, 2.0, 4.0)
LATE_S = 30.0
PAGE = 200
BEGIN_AGAIN_S = 60.0
MOST_WAIT_S = 3600.0


def online_workers(api: str, pool: str) -> set[str]:
    """Return the names of the pool's workers whose heartbeats reach Prefect: three missing ones make a worker offline.

    Raises:
        StoreError: The server does not answer.
    """
    workers = _ask_pool(api, f"{pool}/workers/filter", {"limit": PAGE}) or []
    return {worker["name"] for worker in workers if worker["status"] == "ONLINE"}


def pool_type(api: str, pool: str) -> str | None:
    """Return the type of a work pool, or None if nobody has made it yet.

    Raises:
        StoreError: The server does not answer.
    """
    work_pool = _ask_pool(api, pool, None, "GET")
    return str(work_pool["type"]) if work_pool else None


def _ask_pool(api: str, path: str, body: Any, method: str = "POST") -> Any:
    try:
        return ask(api, f"work_pools/{path}", body, method)
    except StoreError as error:
        if getattr(error.__cause__, "code", None) == HTTPStatus.NOT_FOUND:  # the first worker makes the pool
            return None
        raise


def take_up(api: str, pool: str, online: Collection[str] = (), in_pods: Collection[str] | None = None) -> list[str]:
    """Settle the pool's open runs that have no process on this machine, or no pod; return a message for each.

    A run that a person was cancelling is marked as cancelled. A run that was started MOST_STARTS times is marked as
    crashed, because it may be what kills its worker. Any other run is scheduled again.

    Args:
        api: The server's API.
        pool: The work pool.
        online: The workers that settle their runs themselves, on this or other machines.
        in_pods: If runs of the pool are pods: the runs that have one. `online` is not read then. Runs that Prefect's
            worker has marked as crashed, because their pod is gone, are settled too.

    Raises:
        StoreError: The server does not answer.
    """
    if in_pods is None:
        living = set(_living())
        return [
            _settle(api, run)
            for run in _runs_of(api, pool, {"state": {"type": {"any_": OPEN}}})
            if run["id"] not in living and not _is_of(run, online, time.time())
        ]
    now = time.time()
    ended = {"after_": datetime.fromtimestamp(now - MOST_WAIT_S, UTC).isoformat()}
    crashed = _runs_of(api, pool, {"state": {"type": {"any_": ["CRASHED"]}}, "end_time": ended})
    open_runs = _runs_of(api, pool, {"state": {"type": {"any_": OPEN}}})
    lost = [run for run in open_runs if not _is_new(run, now)]
    lost += [run for run in crashed if 0 < run["run_count"] < MOST_STARTS]
    return [_settle(api, run) for run in lost if run["id"] not in in_pods]


def is_cancelled() -> bool:
    """Return whether a person has cancelled the flow run of this process; false if the server does not say it.

    A run that gets SIGTERM goes on later, unless it is cancelled.
    """
    run, api = os.environ.get(FLOW_RUN), os.environ.get(API)
    if not run or not api:
        return False
    return is_run_cancelled(api, run)


def is_run_cancelled(api: str, run: str) -> bool:
    """Return whether the flow run of an id is cancelled, or about to be; false if the server does not say it."""
    try:
        state: str = ask(api, f"flow_runs/{run}", None, "GET")["state_type"]
    except StoreError:
        return False
    return state in ("CANCELLING", "CANCELLED")


def cancel_run(api: str, run: str) -> bool:
    """Cancel a flow run that a worker runs; return false if no worker does, or the server does not answer."""
    try:
        if ask(api, f"flow_runs/{run}", None, "GET").get("deployment_id") is None:
            return False
        state = {"type": "CANCELLING", "name": "Cancelling"}
        return str(ask(api, f"flow_runs/{run}/set_state", {"state": state}).get("status")) == "ACCEPT"
    except StoreError:
        return False


def _runs_of(api: str, pool: str, flow_runs: dict[str, Any]) -> list[dict[str, Any]]:
    return all_runs(api, {"work_pools": {"name": {"any_": [pool]}}, "flow_runs": flow_runs})


def _is_new(run: dict[str, Any], now: float) -> bool:
    """Return whether a run's state is so young that its process, label or pod may not be there yet."""
    return now - datetime.fromisoformat(run["state"]["timestamp"]).timestamp() < BEGIN_AGAIN_S


def _is_of(run: dict[str, Any], online: Collection[str], now: float) -> bool:
    """Return whether a run belongs to one of the workers, or may: a worker labels a run a moment after it took it."""
    return bool(online) and (_is_new(run, now) or (run["labels"] or {}).get(WORKER_LABEL) in online)


def pass_over(api: str, pool: str) -> list[str]:
    """Cancel scheduled runs whose time passed while the platform was down (no catch-up); return a message for each.

    Raises:
        StoreError: The server does not answer.
    """
    now = datetime.now(UTC)
    query = {
        "work_pools": {"name": {"any_": [pool]}},
        "flow_runs": {
            "state": {"type": {"any_": ["SCHEDULED"]}},
            "expected_start_time": {"before_": (now - timedelta(seconds=LATE_S)).isoformat()},
        },
    }
    missed = [run for run in all_runs(api, query) if is_missed(run)]
    reason = "the platform was down when it was due"
    _cancel(api, missed, "Missed", reason)
    return [f"{run['name']}: was due {run['expected_start_time']}, {reason}" for run in missed]


def open_runs(api: str, pool: str) -> list[str]:
    """Return the names of the pool's runs that were started and have not ended.

    Raises:
        StoreError: The server does not answer.
    """
    return [run["name"] for run in _runs_of(api, pool, {"state": {"type": {"any_": OPEN}}})]


def move_waiting(api: str, deployments: list[str]) -> list[str]:
    """Create waiting runs anew whose work queue was removed with its pool; return a message for each.

    Prefect would leave them Scheduled for ever, and gives no run another queue. The new run has the old one's id as its
    idempotency key, so that a repeat makes no second one. Runs of a schedule are cancelled: it starts the next one.

    Args:
        api: The server's API.
        deployments: The ids of deployments that have a queue.

    Raises:
        StoreError: The server does not answer.
    """
    waiting = {"state": {"type": {"any_": ["SCHEDULED", "PAUSED"]}}, "deployment_id": {"any_": deployments}}
    runs = [run for run in all_runs(api, {"flow_runs": waiting}) if run["work_queue_id"] is None] if deployments else []
    for run in runs:
        if not run["auto_scheduled"]:
            ask(api, f"deployments/{run['deployment_id']}/create_flow_run", _copy(run))
        _cancel(api, [run], "Cancelled", _moved(run))
    return [f"{run['name']}: {_moved(run)}" for run in runs]


def _moved(run: dict[str, Any]) -> str:
    goes_on = "its schedule starts the next one" if run["auto_scheduled"] else "it is scheduled again in the new one"
    return f"its work pool was replaced: {goes_on}"


def _copy(run: dict[str, Any]) -> dict[str, Any]:
    details = {"scheduled_time": run["expected_start_time"]}
    state = {"type": "SCHEDULED", "message": "its work pool was replaced", "state_details": details}
    return {**{key: run[key] for key in ("name", "parameters", "tags")}, "state": state, "idempotency_key": run["id"]}


def _cancel(api: str, runs: list[dict[str, Any]], name: str, reason: str) -> None:
    for run in runs:
        state = {"type": "CANCELLED", "name": name, "message": reason}
        ask(api, f"flow_runs/{run['id']}/set_state", {"state": state, "force": True})


def begin_again(api: str, pool: str, now: float) -> list[str]:
    """Schedule the pool's runs again that crashed before they started, for an hour; return a message for each.

    If the server is killed or busy while a worker submits a run, the run crashes so, and nothing else starts it again.

    Raises:
        StoreError: The server does not answer.
    """
    query = {
        "work_pools": {"name": {"any_": [pool]}},
        "flow_runs": {
            "state": {"type": {"any_": ["CRASHED"]}},
            "expected_start_time": {"after_": datetime.fromtimestamp(now - MOST_WAIT_S, UTC).isoformat()},
        },
    }
    lost = [run for run in all_runs(api, query) if not run["run_count"] and _is_due(run, now)]
    for run in lost:
        state = _in_its_turn(run, "it crashed before it started: it is scheduled again")
        ask(api, f"flow_runs/{run['id']}/set_state", {"state": state, "force": True})
    return [f"{run['name']}: it crashed before it started: it is scheduled again" for run in lost]


def crash_runs(api: str, lost: Collection[UUID | str]) -> list[dict[str, Any]]:
    """Mark the open runs of dead processes as Crashed; return them. Prefect does it for runs of its workers alone.

    Args:
        api: The server's API.
        lost: The id of a dead process's flow run, or the tag of all runs that it began.

    Raises:
        StoreError: The server does not answer.
    """
    ids = [str(which) for which in lost if isinstance(which, UUID)]
    filters: list[dict[str, Any]] = [{"tags": {"all_": [tag]}} for tag in lost if not isinstance(tag, UUID)]
    filters += [{"id": {"any_": ids}}] if ids else []
    is_open = {"state": {"type": {"not_any_": ENDED}}}
    runs = [run for which in filters for run in all_runs(api, {"flow_runs": {**which, **is_open}})]
    state = {"type": "CRASHED", "name": "Crashed", "message": "its process was killed"}
    crashed = [run for run in runs if run["deployment_id"] is None]
    for run in crashed:
        ask(api, f"flow_runs/{run['id']}/set_state", {"state": state, "force": True})
    return crashed


def close_task_runs(api: str, ended: list[str]) -> list[str]:
    """Mark the open task runs of these ended flow runs as Crashed; return a message for each.

    A killed process does not report the end of its tasks, and the end of a flow run does not end its task runs.

    Raises:
        StoreError: The server does not answer.
    """
    state = {"type": "CRASHED", "name": "Crashed", "message": "the process of its flow run was killed"}
    closed = _open_task_runs(api, {"id": {"any_": ended}}) if ended else []
    for task in closed:
        ask(api, f"task_runs/{task['id']}/set_state", {"state": state, "force": True})
    return [f"{task['name']}: its flow run ended; marked as Crashed" for task in closed]


def ended_with_open_tasks(api: str, pool: str | None, now: float) -> list[str]:
    """Return ids of flow runs (of the pool, if set) that ended at least a minute ago and have open task runs.

    Flow runs that ended later are left out: Prefect receives the end of a task later than the end of its flow.

    Raises:
        StoreError: The server does not answer.
    """
    ended = {
        "state": {"type": {"any_": ENDED}},
        "end_time": {"before_": datetime.fromtimestamp(now - BEGIN_AGAIN_S, UTC).isoformat()},
    }
    ids = sorted({task["flow_run_id"] for task in _open_task_runs(api, ended)})
    if not ids or pool is None:
        return ids
    of_pool = all_runs(api, {"flow_runs": {"id": {"any_": ids}}, "work_pools": {"name": {"any_": [pool]}}})
    return [run["id"] for run in of_pool]


def _open_task_runs(api: str, flow_runs: dict[str, Any]) -> list[dict[str, Any]]:
    query = {"flow_runs": flow_runs, "task_runs": {"state": {"type": {"any_": [*OPEN, "SCHEDULED", "PAUSED"]}}}}
    return _every(api, "task_runs", query)


def is_due_again(first: float, last: float, now: float, wait_s: float) -> bool:
    """Return whether a retry is due, by the Unix times of the first and last attempt; waits double, up to an hour."""
    return now - last >= min(max(wait_s, last - first), MOST_WAIT_S)


def _is_due(run: dict[str, Any], now: float) -> bool:
    first, last = (
        datetime.fromisoformat(text).timestamp() for text in (run["expected_start_time"], run["state"]["timestamp"])
    )
    return is_due_again(first, last, now, BEGIN_AGAIN_S)


def is_missed(run: dict[str, Any]) -> bool:
    """Return whether a late run comes from a schedule and was never started."""
    return bool(run["auto_scheduled"]) and not run["run_count"]


def becomes(run: dict[str, Any]) -> dict[str, Any]:
    """Return the new state of a run without a process; a rescheduled run keeps its time, before all later runs."""
    if run["state_type"] == "CANCELLING":
        return {"type": "CANCELLED", "message": "its process is gone"}
    if run["run_count"] >= MOST_STARTS:
        return {"type": "CRASHED", "message": f"its process was killed {run['run_count']} times"}
    return _in_its_turn(run, "its process was killed: the next start continues it")


def _in_its_turn(run: dict[str, Any], reason: str) -> dict[str, Any]:
    details = {"scheduled_time": run["expected_start_time"]}
    return {"type": "SCHEDULED", "name": "AwaitingRetry", "message": reason, "state_details": details}


def ask(api: str, path: str, body: Any, method: str = "POST", timeout_s: float = ANSWER_S) -> Any:
    """Send a request to a Prefect server without importing Prefect, which takes a second.

    Like Prefect's own client, it authenticates by PREFECT_API_AUTH_STRING or PREFECT_API_KEY, and retries if the server
    is busy (SQLite under load: 503) or closes the connection before it answers, as one that starts or ends does. Every
    request may be sent twice: it sets a state, or has an id of its own.

    Raises:
        StoreError: The server does not answer, or refuses the request.
    """
    headers = {"Content-Type": "application/json", **_authorization()}
    data = json.dumps(body).encode()
    for wait_s in (*PAUSES_S, None):
        try:
            request = urllib.request.Request(f"{api}/{path}", data, headers, method=method)  # noqa: S310 - as configured
            with http_client.opened(request, timeout_s) as answer:
                return json.loads(answer.read() or b"null")
        except (urllib.error.URLError, OSError, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # a StoreError keeps it as its cause, and it would keep the connection open
            if wait_s is not None and _may_pass(error):
                time.sleep(wait_s)
                continue
            raise StoreError(
                f"Prefect's server at {api} does not answer as it should ({error}): start it again, or correct "
                "PREFECT_API_URL"
            ) from error
    raise AssertionError("the last attempt returns or raises")


def _may_pass(error: Exception) -> bool:
    """Return whether the same request may succeed a moment later; a refused connection says that no server is up."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in BUSY
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(cause, ConnectionResetError | BrokenPipeError)


def _authorization() -> dict[str, str]:
    if secret := os.environ.get("PREFECT_API_AUTH_STRING"):
        return {"Authorization": "Basic " + base64.b64encode(secret.encode()).decode()}
    if key := os.environ.get("PREFECT_API_KEY"):
        return {"Authorization": f"Bearer {key}"}
    return {}


def all_runs(api: str, query: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all flow runs that match a filter; all are read before any of them changes."""
    return _every(api, "flow_runs", query)


def _every(api: str, kind: str, query: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all objects that match a filter, read page by page."""
    collected: list[dict[str, Any]] = []
    page = {"sort": "ID_DESC", "limit": PAGE}
    while runs := ask(api, f"{kind}/filter", {**query, **page, "offset": len(collected)}):
        collected += runs
    return collected


def _settle(api: str, run: dict[str, Any]) -> str:
    state = becomes(run)
    ask(api, f"flow_runs/{run['id']}/set_state", {"state": state, "force": True})
    return f"{run['name']}: {state['message']}"


def _living() -> Iterator[str]:
    import psutil

    for process in psutil.process_iter(["pid"]):
        with contextlib.suppress(psutil.Error, OSError):
            run = process.environ().get(FLOW_RUN)
            if run and process.status() != psutil.STATUS_ZOMBIE:
                yield run
