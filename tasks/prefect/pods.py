"""Flow runs in pods, if places.yaml has an entry `pool`: `python -m tasks.prefect.pods` carries out that of its pod.

Prefect's Kubernetes worker makes a job of one pod for each flow run. A pod that gets SIGTERM hands its run back to
Prefect; a run whose pod is killed is scheduled again by `flow_runs.take_up`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import tempfile
from typing import Any

from models.errors import StoreError, UsageError
from models.installation import adding_extra
from tasks.host import stores
from tasks.host.server_access import CLIENT
from tasks.host.workspace import HOME, Workspace
from tasks.ranks.kubernetes import Kubernetes

NAMESPACE = "default"
CONTAINER = "prefect-job"  # the name that Prefect demands
RUN_LABEL = "prefect.io/flow-run-id"
SHOWN_S = 600  # a job that is over stays so long, for whoever looks at its pod
ANSWER_S = 30
_OVER = {"Complete", "Failed"}


def namespace_of(place: Kubernetes) -> str:
    """Return the namespace of the flow runs' jobs."""
    return place.namespace or NAMESPACE


def job_template(workspace: Workspace, place: Kubernetes) -> dict[str, Any]:
    """Return the base job template of the work pool.

    Raises:
        UsageError: Prefect's Kubernetes worker is not installed, or `pod_template` does not fit.
    """
    require_worker()
    from prefect_kubernetes.worker import KubernetesWorker

    template: dict[str, Any] = KubernetesWorker.get_default_base_job_template()
    pod = place.pod(CONTAINER, ["python", "-m", __name__], 1)
    environment = {variable["name"]: _value_of(variable) for variable in pod["containers"][0]["env"]}
    template["job_configuration"]["job_manifest"] = _manifest(place, pod)
    variables = template["variables"]["properties"]
    variables["namespace"]["default"] = namespace_of(place)
    variables["labels"]["default"] = place.labels
    variables["env"]["default"] = {**environment, HOME: str(workspace.root)}
    variables["finished_job_ttl"]["default"] = SHOWN_S
    variables["stream_output"]["default"] = False
    used = str(template["job_configuration"])
    template["variables"]["properties"] = {key: value for key, value in variables.items() if f"{{{{ {key} }}}}" in used}
    return template


def _value_of(variable: dict[str, Any]) -> str:
    if "value" not in variable:
        raise UsageError(
            f"places.yaml: pool.pod_template: got {variable} for the flow runs, expected an env with a value: put it "
            "into the Secret that `secret` names"
        )
    return str(variable["value"])


def worker_environment(place: Kubernetes) -> dict[str, str]:
    """Return the settings of Prefect's worker: where it watches, and where the pods have the server's secret from."""
    settings = {"PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES": namespace_of(place)}
    if place.secret and os.environ.get(CLIENT):  # else Prefect writes its value into each job
        name = "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_AUTH_STRING_SECRET"
        settings |= {f"{name}_NAME": place.secret, f"{name}_KEY": CLIENT}
    return settings


def require_worker() -> None:
    """Check that Prefect's Kubernetes worker is installed.

    Raises:
        UsageError: It is not.
    """
    if importlib.util.find_spec("prefect_kubernetes") is None:
        raise UsageError(f"places.yaml: pool: this environment has no prefect-kubernetes: {adding_extra('kubernetes')}")


def runs_in_pods(place: Kubernetes) -> set[str]:
    """Return the ids of the flow runs whose job is not over, in the pool's namespace.

    Raises:
        StoreError: Kubernetes does not answer, or refuses.
        UsageError: Prefect's Kubernetes worker is not installed.
    """
    require_worker()
    from aiohttp import ClientError
    from kubernetes_asyncio.client.exceptions import ApiException
    from kubernetes_asyncio.config import ConfigException

    try:
        jobs = asyncio.run(_jobs(namespace_of(place)))
    except (ClientError, ApiException, ConfigException, OSError) as error:
        raise StoreError(
            f"Kubernetes does not tell the jobs of namespace {namespace_of(place)} ({' '.join(str(error).split())}): "
            "start it, or allow this worker to list jobs"
        ) from error
    return {job.metadata.labels[RUN_LABEL] for job in jobs if not _is_over(job)}


def main() -> None:
    """Carry out the flow run that the environment names, with the settings of the workspace."""
    os.environ.update(stores.environment(Workspace.find()))
    os.chdir(tempfile.mkdtemp())  # Prefect copies the working directory, which may be the whole workspace
    os.execv(sys.executable, [sys.executable, "-m", "prefect", "flow-run", "execute"])  # noqa: S606 - no shell is needed


def _manifest(place: Kubernetes, pod: dict[str, Any]) -> dict[str, Any]:
    """Return the template of a flow run's job. Prefect fills in the braces, and demands its two keys in the pod."""
    container = {**pod["containers"][0], "args": [], "env": "{{ env }}"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "labels": "{{ labels }}",
            "annotations": "{{ annotations }}",
            "namespace": "{{ namespace }}",
            "generateName": "{{ name }}-",
        },
        "spec": {
            "backoffLimit": 0,  # Prefect runs it again, not Kubernetes: else it would run twice
            "parallelism": 1,
            "completions": 1,
            "ttlSecondsAfterFinished": "{{ finished_job_ttl }}",
            **place.deadline,
            "template": {
                "metadata": place.pod_metadata({}),
                "spec": {**pod, "parallelism": 1, "completions": 1, "containers": [container, *pod["containers"][1:]]},
            },
        },
    }


async def _jobs(namespace: str) -> list[Any]:
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import ApiClient, BatchV1Api

    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()
    async with ApiClient() as client:
        jobs = await BatchV1Api(client).list_namespaced_job(
            namespace, label_selector=RUN_LABEL, _request_timeout=ANSWER_S
        )
    items: list[Any] = jobs.items
    return items


def _is_over(job: Any) -> bool:
    return any(condition.type in _OVER and condition.status == "True" for condition in job.status.conditions or ())


if __name__ == "__main__":
    main()
