"""The same three servers without us: `prefect server start`, `mlflow server` and `prefect worker start` from a script.

`python -m tests.bench.bare_platform FOLDER` prints JSON: seconds until they are healthy with new stores (`first_up_s`)
and with those there already (`up_s`), and from Prefect's own `emit_event` to the start of a flow of one line that an
automation like ours begins, with the worker's default interval of asking (`event_default_s`) and with ours (`event_s`).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from models.errors import StoreError
from tasks.host.ports import any_free
from tasks.host.stores import polling
from tasks.prefect.automations import STORM_S
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import answers

POOL = "bare"
EVENT = "bare.asked"
EVENTS = 3
LOOK_S = 0.05
PATIENCE_S = 180.0
INTERVAL = "PREFECT_WORKER_QUERY_SECONDS"


def main(folder: Path) -> None:
    """Bring them up twice; send events to each."""
    ports = any_free([]), any_free([])
    os.environ["PREFECT_API_URL"] = api = f"http://127.0.0.1:{ports[0]}/api"
    os.environ["PREFECT_HOME"] = str(folder / "prefect")
    with _up(folder, ports, {}) as first_up_s:
        _automate()
        event_default_s = statistics.median(_event_s(api) for _ in range(EVENTS))
    with _up(folder, ports, {INTERVAL: polling({})[INTERVAL]}) as up_s:
        event_s = statistics.median(_event_s(api) for _ in range(EVENTS))
    told = {"first_up_s": first_up_s, "up_s": up_s, "event_s": event_s, "event_default_s": event_default_s}
    print(json.dumps(told))


@contextlib.contextmanager
def _up(folder: Path, ports: tuple[int, int], environ: dict[str, str]) -> Iterator[float]:
    """All three begun together; gives the seconds until each is healthy. MLflow with one process, as ours."""
    listen = [["--host", "127.0.0.1", "--port", str(port)] for port in ports]
    store = ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    commands = [
        ["prefect", "server", "start", *listen[0]],
        ["mlflow", "server", *listen[1], *store],
        ["prefect", "worker", "start", "--pool", POOL, "--type", "process"],
    ]
    own = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **environ}
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "bare.log").open("ab"))
        began = time.monotonic()
        for command in commands:
            process = subprocess.Popen([sys.executable, "-m", *command], env=own, stdout=log, stderr=log, cwd=folder)
            stack.callback(_end, process)
        api, page = (f"http://127.0.0.1:{port}" for port in ports)
        _until(lambda: answers(f"{api}/api/health") and answers(f"{page}/health") and _has_worker(f"{api}/api", began))
        yield time.monotonic() - began


def _has_worker(api: str, began: float) -> bool:
    since = time.time() - (time.monotonic() - began)
    with contextlib.suppress(StoreError):
        beats = [one["last_heartbeat_time"] for one in ask(api, f"work_pools/{POOL}/workers/filter", {})]
        return any(datetime.fromisoformat(beat).timestamp() > since for beat in beats if beat)
    return False


def _automate() -> None:
    """One deployment of the flow, and one automation that runs it."""
    from prefect.automations import Automation
    from prefect.events.actions import RunDeployment
    from prefect.events.schemas.automations import EventTrigger, Posture
    from prefect.flows import EntrypointType

    from tests.bench.bare_flow import nothing

    made: Any = nothing.to_deployment("bare", work_pool_name=POOL, entrypoint_type=EntrypointType.MODULE_PATH).apply()
    each = {"prefect.resource.id"}
    trigger = EventTrigger(expect={EVENT}, for_each=each, posture=Posture.Reactive, threshold=1, within=STORM_S)
    Automation(name="bare", trigger=trigger, actions=[RunDeployment(deployment_id=made)]).create()


def _event_s(api: str) -> float:
    from prefect.events import emit_event

    sent = time.time()
    emit_event(EVENT, resource={"prefect.resource.id": "bare"})
    found: list[float] = []

    def has_begun() -> bool:
        runs = ask(api, "flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})
        began = runs[0]["start_time"] if runs else None
        found[:] = [datetime.fromisoformat(began).timestamp()] if began else []
        return bool(found) and found[0] > sent

    _until(has_begun)
    time.sleep(STORM_S + 1.0)  # events of that time are one storm, and begin one run
    return found[0] - sent


def _until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:g} s")
        time.sleep(LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
