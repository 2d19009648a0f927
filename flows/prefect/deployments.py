"""Prefect deployments of the projects: planned from the specs alone, and applied to Prefect's server."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import time
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from flows.prefect.work_pool import OTHERS, attach, make_pool, make_queues
from models.errors import LooplineError, StoreError
from models.project_spec.blocks import Spec
from models.project_spec.schedule import Schedule, parse
from tasks.host.workspace import Project, Workspace
from tasks.prefect import automations
from tasks.prefect.events import TAG
from tasks.prefect.flow_runs import BUSY, move_waiting
from tasks.prefect.notifications import make_blocks
from tasks.prefect.worker import POOL, pool_of

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse
    from prefect.deployments.runner import RunnerDeployment

SLUG = "spec"
PATIENCE_S = 240.0
"""How long a busy server is tried again after the last deployment that it took, beside the minute for which Prefect's
own client repeats each request."""
PAUSE_S = 2.0
CONTENT = {
    "description",
    "tags",
    "parameters",
    "schedules",
    "entrypoint",
    "work_pool_name",
    "work_queue_name",
    "concurrency_options",
}
"""Fields of a deployment that a spec decides. A person may have paused it, or set variables of its job: they stay."""
HEAD = """\
# What `loopline deploy` tells Prefect, for Prefect's own command line, once `loopline up` has made the work pool:
#   eval "$(loopline env)" && prefect --no-prompt deploy --prefect-file infra/prefect.yaml --all
# Written by `loopline deploy --write infra/prefect.yaml`.
"""


@dataclass(frozen=True)
class FlowKind:
    """A flow of which each project has a deployment.

    `when` returns the schedule's text from the spec. `collision` decides on a run while another run of its deployment
    is running: it waits, or it is cancelled if the running one does its work too.
    """

    flow: str
    does: str
    when: Callable[[Spec], str | None] = lambda _: None
    collision: Literal["ENQUEUE", "CANCEL_NEW"] = "ENQUEUE"
    is_loop: bool = False

    @property
    def module(self) -> str:
        """The flow's module."""
        return f"flows.{self.flow}"


KINDS = (
    FlowKind("train", "Run the loop of {name}, as `loopline run` does.", is_loop=True),
    FlowKind(
        "retrain",
        "Decide by the policy of the spec whether to retrain {name}, and retrain it.",
        lambda spec: spec.retrain.schedule,
        is_loop=True,
    ),
    FlowKind(
        "monitor",
        "Monitor the newest predictions of {name}: data contract, realised metric, drift.",
        lambda spec: spec.monitor.schedule,
        "CANCEL_NEW",
    ),
    FlowKind("predict", "Predict a file with the champion of {name}."),
    FlowKind("backtest", "Replay the past of {name} under other policies of retraining."),
)


@dataclass(frozen=True)
class DeploymentPlan:
    """A deployment as the spec defines it."""

    flow: str
    name: str
    entrypoint: str
    description: str
    tags: list[str]
    queue: str
    collision: str
    schedule: Schedule | None
    parameters: dict[str, Any]


def planned(project: Project, spec: Spec) -> list[DeploymentPlan]:
    """Return the deployments of a project, one for each flow."""
    return [
        DeploymentPlan(
            flow=kind.flow,
            name=spec.name,
            entrypoint=f"{kind.module}.{kind.flow}",
            description=kind.does.format(name=spec.name) + (f"\n\n{spec.description}" if spec.description else ""),
            tags=[TAG, spec.name],
            queue=spec.name if kind.is_loop else OTHERS,
            collision=kind.collision,
            schedule=parse(text, spec.retrain.timezone) if (text := kind.when(spec)) else None,
            parameters={"project": project.folder.name if project.inside else str(project.folder)},
        )
        for kind in KINDS
        if importlib.util.find_spec(kind.module)
    ]


def prefect_file(projects: list[Project]) -> str:
    """Return the deployments of these projects as a file for Prefect's own `prefect deploy`.

    Raises:
        UsageError: A spec is wrong.
    """
    from ruamel.yaml import YAML

    specs = [(project, project.spec()) for project in projects]
    documents = [_as_yaml(plan) for project, spec in specs for plan in planned(project, spec)]
    text = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 120
    yaml.dump({"name": TAG, "pull": [], "deployments": documents}, text)
    return f"{HEAD}{text.getvalue()}"


def _as_yaml(plan: DeploymentPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "entrypoint": plan.entrypoint,
        "description": plan.description,
        "tags": plan.tags,
        "parameters": plan.parameters,
        "schedules": [_schedule_as_yaml(plan.schedule)] if plan.schedule else [],
        "concurrency_limit": {"limit": 1, "collision_strategy": plan.collision},
        "work_pool": {"name": POOL, "work_queue_name": plan.queue},
    }


def _schedule_as_yaml(schedule: Schedule) -> dict[str, Any]:
    if schedule.kind == "interval":
        anchor = datetime.fromtimestamp(schedule.anchor, UTC).isoformat()
        return {"interval": int(schedule.interval_s), "anchor_date": anchor, "timezone": "UTC", "slug": SLUG}
    return {schedule.kind: schedule.text, "timezone": schedule.timezone, "slug": SLUG}


def import_flows() -> None:
    """Import Prefect and every flow, which `deploy` needs; Prefect reads its server's address during the import."""
    import prefect.deployments.runner  # noqa: F401

    for kind in KINDS:
        importlib.import_module(kind.module)


def deploy(workspace: Workspace, projects: list[Project], note: Callable[[str], None]) -> list[DeploymentPlan]:
    """Apply these projects' deployments to Prefect's server; schedules that a person switched off there stay off.

    What the server has as it should be is left alone. The pool's deployments whose project is gone are removed. A pool
    of another type is replaced, and the runs that wait in it are moved, which is noted. A busy server is tried again
    for PATIENCE_S after the last deployment that it took; a repeat finishes what a failure leaves.

    Args:
        workspace: The workspace, whose work pool is created if needed.
        projects: The projects; a project with a wrong spec is noted and skipped.
        note: Receives messages.

    Raises:
        StoreError: Prefect's server does not respond, or refused.
        UsageError: The pool has another type, and workers of that type are online.
    """
    import httpx
    from prefect.exceptions import PrefectHTTPStatusError

    specs = list(_specs(projects, note))
    plans = [plan for project, spec in specs for plan in planned(project, spec)]
    ids: dict[tuple[str, str], UUID] = {}
    num_applied, deadline = 0, time.monotonic() + PATIENCE_S
    while True:
        try:
            with _opened_client() as client:
                _deploy(client, workspace, [spec for _, spec in specs], plans, ids, note)
            return plans
        except (httpx.HTTPError, PrefectHTTPStatusError, RuntimeError, StoreError) as error:
            if len(ids) > num_applied:  # slow, but it goes on
                num_applied, deadline = len(ids), time.monotonic() + PATIENCE_S
            if not is_busy(error) or time.monotonic() > deadline:
                if isinstance(error, StoreError):
                    raise
                raise StoreError(
                    f"Prefect's server did not take the deployments ({error}): look at its log, then `loopline up` "
                    "again, which finishes what is left"
                ) from error
            note("Prefect's server is busy: the deployments are tried again")
            time.sleep(PAUSE_S)


@contextlib.contextmanager
def _opened_client() -> Iterator[SyncPrefectClient]:
    """Open the client that `_apply` uses too, since each client reads all certificates.

    The version is checked first: a context of Prefect whose own check fails leaves its client's connection open.
    """
    from prefect.context import SyncClientContext

    context = SyncClientContext()
    with context.client as client:
        client.raise_for_api_version_mismatch_once()
        with context:
            yield client


def _deploy(
    client: SyncPrefectClient,
    workspace: Workspace,
    specs: list[Spec],
    plans: list[DeploymentPlan],
    ids: dict[tuple[str, str], UUID],
    note: Callable[[str], None],
) -> None:
    """Apply the plans; each deployment that Prefect has as it should be gets its id in `ids`."""
    api, pool = os.environ["PREFECT_API_URL"], pool_of(workspace)
    before = _existing(client, workspace, pool)
    is_new = make_pool(client, workspace, pool, note)
    make_queues(client, sorted({plan.queue for plan in plans} - {OTHERS}), pool)
    for plan in plans:
        ids[plan.flow, plan.name] = _apply(plan, pool, before.get((plan.flow, plan.name)))
    rest = [stored for key, stored in before.items() if key not in ids and (is_new or stored.work_pool_name is None)]
    for stored in rest:
        attach(client, stored, pool)
    for line in move_waiting(api, sorted(map(str, (*ids.values(), *(stored.id for stored in rest))))):
        note(line)
    _remove(client, workspace, before, plans, note)
    _automate(client, workspace, pool, specs, ids)


def is_busy(error: BaseException) -> bool:
    """Return whether Prefect's server said that it is busy, or did not answer in time: then it is asked again."""
    import httpx
    from prefect.exceptions import PrefectHTTPStatusError

    if isinstance(error, PrefectHTTPStatusError):
        return error.response.status_code in BUSY
    if isinstance(error, urllib.error.HTTPError):
        return error.code in BUSY
    is_late = isinstance(error, httpx.TimeoutException | TimeoutError)
    return is_late or (error.__cause__ is not None and is_busy(error.__cause__))


def _specs(projects: list[Project], note: Callable[[str], None]) -> Iterator[tuple[Project, Spec]]:
    """Yield the projects that can be deployed; note the reason for the others."""
    owners: dict[str, Path] = {}
    for project in projects:
        try:
            spec = project.spec()
            if owners.setdefault(spec.name, project.folder) != project.folder:
                raise project.name_taken(spec.name, owners[spec.name])
        except LooplineError as error:
            note(f"not deployed: {error}")
        else:
            yield project, spec


def _existing(client: SyncPrefectClient, workspace: Workspace, pool: str) -> dict[tuple[str, str], DeploymentResponse]:
    """Return Loopline's deployments in the pool, and this workspace's whose pool was removed, by flow and name."""
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags

    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    deployments: list[DeploymentResponse] = []
    while page := client.read_deployments(deployment_filter=ours, limit=200, offset=len(deployments)):
        deployments += page
    return {
        (deployment.entrypoint.rpartition(".")[2], deployment.name): deployment
        for deployment in deployments
        if deployment.entrypoint
        and (deployment.work_pool_name == pool or (deployment.work_pool_name is None and _is_of(workspace, deployment)))
    }


def _automate(
    client: SyncPrefectClient,
    workspace: Workspace,
    pool: str,
    specs: list[Spec],
    deployments: dict[tuple[str, str], UUID],
) -> None:
    """Apply the automations of these projects and of the pool; remove those of projects that are gone."""
    specs_of_automations = automations.of_pool(
        pool, os.environ["PREFECT_API_URL"].removesuffix("/api"), make_blocks(client, pool)
    )
    retrained = {name for flow, name in _existing(client, workspace, pool) if flow == "retrain"}
    names_of_others = retrained - {spec.name for spec in specs}
    for spec in specs:
        specs_of_automations += automations.of_project(spec.name, spec.retrain, deployments["retrain", spec.name])
        if spec.monitor.schedule is not None:
            specs_of_automations.append(automations.of_champion(spec.name, deployments["monitor", spec.name]))
    automations.apply(client, pool, specs_of_automations, keep=names_of_others)


def _apply(plan: DeploymentPlan, pool: str, before: DeploymentResponse | None) -> UUID:
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
    from prefect.flows import EntrypointType

    flow = getattr(importlib.import_module(plan.entrypoint.rpartition(".")[0]), plan.flow)
    is_active = not any(not schedule.active for schedule in before.schedules) if before else True
    deployment = flow.to_deployment(
        plan.name,
        schedules=[_schedule(plan.schedule, is_active)] if plan.schedule else [],
        paused=before.paused if before else False,
        parameters=plan.parameters,
        description=plan.description,
        tags=plan.tags,
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy(plan.collision)),
        work_pool_name=pool,
        work_queue_name=plan.queue,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    is_current = before and _is_current(before, deployment, flow.parameters.model_dump(exclude_unset=True))
    deployment_id: UUID = before.id if before and is_current else deployment.apply()
    return deployment_id


def _is_current(before: DeploymentResponse, wanted: RunnerDeployment, schema: dict[str, Any]) -> bool:
    """Return whether Prefect's server has a deployment as the spec and the flow's parameters want it."""
    limit = before.global_concurrency_limit
    is_limited = limit is not None and limit.limit == wanted.concurrency_limit
    return is_limited and before.parameter_openapi_schema == schema and _content(before) == _content(wanted)


def _content(deployment: DeploymentResponse | RunnerDeployment) -> dict[str, Any]:
    content: dict[str, Any] = deployment.model_dump(mode="json", include=CONTENT)
    schedules = [(schedule["slug"], schedule["active"], schedule["schedule"]) for schedule in content["schedules"]]
    return {**content, "schedules": schedules, "tags": sorted(content["tags"])}


def _schedule(schedule: Schedule, is_active: bool) -> Any:
    """Return a Prefect schedule; intervals use UTC, so that their length does not change with daylight saving time."""
    from prefect.schedules import Cron, Interval, RRule

    if schedule.kind == "interval":
        anchor = datetime.fromtimestamp(schedule.anchor, UTC)
        every = timedelta(seconds=schedule.interval_s)
        return Interval(every, anchor_date=anchor, timezone="UTC", active=is_active, slug=SLUG)
    make = Cron if schedule.kind == "cron" else RRule
    return make(schedule.text, timezone=schedule.timezone, active=is_active, slug=SLUG)


def _remove(
    client: SyncPrefectClient,
    workspace: Workspace,
    before: dict[tuple[str, str], DeploymentResponse],
    plans: list[DeploymentPlan],
    note: Callable[[str], None],
) -> None:
    """Remove the deployments of projects that are gone or renamed; a project with a wrong spec keeps its own."""
    names = {plan.parameters["project"]: plan.name for plan in plans}
    for (flow, name), deployment in before.items():
        project = str(deployment.parameters.get("project", ""))
        if names.get(project, name) != name:
            reason = f"its project is called {names[project]} now"
        elif _is_of(workspace, deployment):
            continue
        else:
            reason = "its project is gone"
        client.delete_deployment(deployment.id)
        note(f"{flow}/{name}: {reason}; deployment removed")


def _is_of(workspace: Workspace, deployment: DeploymentResponse) -> bool:
    """Return whether the workspace has the deployment's project."""
    with contextlib.suppress(LooplineError):
        return bool(workspace.project(str(deployment.parameters.get("project", ""))))
    return False
