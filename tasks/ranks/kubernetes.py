"""Kubernetes as a launcher, through `kubectl`: an Indexed Job, whose pods meet at the first one's host name.

The job's name is the key, and Kubernetes has each name once: whoever submits it second attaches to it, if it is of the
same workspace and volume. A job that is over is removed by Kubernetes (`ttlSecondsAfterFinished`), so its name is free
when it is no longer there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from models.errors import UsageError
from models.project_spec.block import SpecBlock
from tasks.ranks.launcher import (
    SchedulerAwayError,
    Shape,
    State,
    TimeLimit,
    name_of,
    run_program,
    seconds_of,
    workspace_of,
)
from tasks.ranks.torchrun import torchrun

SERVICE, LOG, PORT = "loopline-ranks", "kubernetes.log", 29400
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?([kKMGTPE]i?|m)?$")]

_COMMAND_S = 60
# Longer than the 16 s between two questions for the state: who waits sees why the job ended.
_SHOWN_S = 30
_LABELS = {"app.kubernetes.io/managed-by": "loopline"}
_WORKSPACE, _FOLDER, _VOLUME = "loopline/workspace", "loopline/folder", "workspace"
_OVER = {"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"}
_AWAY = (
    "Unable to connect", "connection refused", "was refused", "i/o timeout", "timed out", "TLS handshake", "EOF",
    "ServiceUnavailable", "TooManyRequests", "currently unable", "etcdserver", "no route to host", "InternalError",
)  # fmt: skip


class PodTemplate(SpecBlock):
    """Parts of a PodTemplateSpec of Kubernetes, which the API server judges."""

    metadata: dict[str, Any] = Field(default_factory=dict, description="Such as labels and annotations.")
    spec: dict[str, Any] = Field(default_factory=dict, description="Such as nodeSelector, tolerations and containers.")


class Kubernetes(SpecBlock):
    """A place of the engine `kubernetes`; the pods share the workspace's volume with this machine."""

    engine: Literal["kubernetes"]
    image: str = Field(min_length=1, description="An image of Loopline, such as registry/loopline@sha256:...")
    claim: Label = Field(description="The claim of the volume with the workspace and the projects; ReadWriteMany.")
    mount: str = Field(pattern="^/", description="Where the volume is mounted: the same path as on this machine.")
    namespace: Label | None = Field(None, description="Default: that of kubectl's context.")
    queue: Label | None = Field(None, description="The local queue of Kueue, which starts all pods of a job or none.")
    cpus: int | None = Field(None, ge=1, description="CPUs of each pod, shared by its ranks. Default: one a rank.")
    memory: Quantity | None = Field(None, description="Memory of each pod, such as 32Gi.")
    gpus: int | None = Field(None, ge=1, description="NVIDIA GPUs of each pod.")
    time: TimeLimit | None = Field(
        None, description="A time limit as of sbatch, such as 12:00:00. It ends the job, which goes on when run again."
    )
    user: int | None = Field(
        None, ge=0, description="The user id of the pods. Default: of who submits, so that both may write the files."
    )
    secret: Label | None = Field(None, description="A Secret whose keys are environment variables of the pods.")
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate,
        description="What else the pods shall have, in Kubernetes' own words: tolerations, annotations, resources of "
        "InfiniBand and others. Lists are joined by the names of their items.",
    )

    programs: ClassVar[tuple[str, ...]] = ("kubectl",)
    starts_jobs: ClassVar[bool] = True

    def check(self) -> None:
        """Let Kubernetes judge the place without making anything; it may be away.

        Raises:
            UsageError: There is no such namespace or queue, or this user may not make jobs.
        """
        with contextlib.suppress(SchedulerAwayError):
            self._check_queue()
            self._create(self.service(), "--dry-run=server")
            self._create(self.job("check", Path("/"), Shape((1, 1), 1, 1, 0)), "--dry-run=server")

    def check_nodes(self, nodes: tuple[int, int]) -> None:
        """Check the least and the most nodes of a training: a job has a fixed number of pods.

        Raises:
            UsageError: They differ.
        """
        fewest, largest = nodes
        if fewest != largest:
            raise UsageError(
                f"train.nodes: got {fewest}:{largest}, expected one number: a job of Kubernetes has as many pods to "
                "its end"
            )

    def submit(self, key: str, job: Path, shape: Shape) -> str:
        """Create the job of a folder, or attach to the one of this name; see `Launcher`.

        Raises:
            UsageError: As of `check_nodes`, or another workspace has a job of this name.
        """
        self.check_nodes(shape.nodes)
        self._create(self.service())
        if not self._create(self.job(key, job, shape)):
            self._state_of_ours(key)
        return f"submitted {name_of(key)} to Kubernetes: {shape.nodes[0]} pod(s); its log is {job / LOG}"

    def state(self, key: str) -> State:
        """Return the state of the job of this name; see `Launcher`."""
        try:
            return self._state_of_ours(key) or "ended"
        except SchedulerAwayError:
            return "unknown"

    def _state_of_ours(self, key: str) -> State | None:
        """Return the state of the job of this name; None if there is none.

        Raises:
            UsageError: It is a job of another workspace or volume, or kubectl did not print a job.
        """
        output = self._kubectl("get", "job", name_of(key), "--ignore-not-found", "--output=json")
        if not output:
            return None
        try:
            job = json.loads(output)
            state, workspace, claim = _state_of(job), _workspace_of(job), _claim_of(job)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                f"kubectl get job {name_of(key)}: got {output[:100]!r}, expected a Job as JSON: correct the program "
                "kubectl, such as its version or a plugin of that name"
            ) from error
        ours = (workspace_of(key), self.claim)
        if (workspace or ours[0], claim or ours[1]) != ours:
            raise UsageError(
                f"kubectl get job {name_of(key)}: got a job of the workspace {workspace} on the claim {claim}, "
                f"expected one of {ours[0]} on {ours[1]}: both workspaces are mounted at {self.mount}; mount this one "
                "elsewhere, or name another namespace for it in places.yaml"
            )
        return state

    def cancel(self, key: str) -> None:
        """Delete the job of this name, if there is one; it is `ending` until its pods have ended."""
        self._kubectl("delete", "job", name_of(key), "--ignore-not-found", "--wait=false", "--cascade=foreground")

    def service(self) -> dict[str, Any]:
        """Return the manifest of the service that gives the pods of all jobs their host names; it serves nothing."""
        spec = {"clusterIP": "None", "selector": _LABELS, "publishNotReadyAddresses": True}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "labels": _LABELS}, "spec": spec}

    @property
    def labels(self) -> dict[str, str]:
        """The labels of a job: Kueue's, if the place has a queue."""
        return {"kueue.x-k8s.io/queue-name": self.queue} if self.queue else {}

    @property
    def deadline(self) -> dict[str, int]:
        """The key of a job's specification that ends it, if the place has a time limit."""
        limit_s = seconds_of(self.time) if self.time else 0
        return {"activeDeadlineSeconds": limit_s} if limit_s else {}

    def job(self, key: str, folder: Path, shape: Shape) -> dict[str, Any]:
        """Return the manifest of a job; each pod is a node."""
        name, pods = name_of(key), shape.nodes[0]
        disrupted = {"type": "DisruptionTarget", "status": "True"}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "labels": {**_LABELS, **self.labels, _WORKSPACE: workspace_of(key)},
                "annotations": {_FOLDER: str(folder)},
            },
            "spec": {
                "completionMode": "Indexed",
                "completions": pods,
                "parallelism": pods,
                "backoffLimit": pods * (shape.max_restarts + 1),
                "ttlSecondsAfterFinished": _SHOWN_S if self.deadline else 0,
                **self.deadline,
                # A pod that is evicted or preempted is made again and does not count as a failure.
                "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [disrupted]}]},
                "template": {"metadata": self.pod_metadata(_LABELS), "spec": self._pod(name, folder, shape)},
            },
        }

    def _pod(self, name: str, folder: Path, shape: Shape) -> dict[str, Any]:
        nodes, endpoint = str(shape.nodes[0]), f"{name}-0.{SERVICE}:{PORT}"
        # torchrun finds out who is the host by the endpoint's name, which may not be known yet when it asks.
        is_host = '--rdzv-conf=is_host=$(test "$JOB_COMPLETION_INDEX" = 0 && echo true || echo false)'
        command = torchrun(folder, shape, nodes, endpoint, name, is_in_image=True, options=is_host)
        script = f"exec >> {shlex.quote(str(folder / LOG))} 2>&1; exec {command}"
        return {"subdomain": SERVICE, **self.pod("ranks", ["sh", "-c", script], shape.ranks * shape.threads)}

    def pod(self, name: str, command: list[str], cpus: int) -> dict[str, Any]:
        """Return the specification of a pod with the workspace's volume; `cpus` is the default of the place's.

        Raises:
            UsageError: `pod_template` has another value for what is set here.
        """
        user = os.getuid() if self.user is None else self.user
        requests = {"cpu": str(self.cpus or cpus)}
        memory = {"memory": self.memory} if self.memory else {}
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        volumes: dict[str, tuple[str, dict[str, Any]]] = {
            self.mount: (_VOLUME, {"persistentVolumeClaim": {"claimName": self.claim}}),
            "/tmp": ("tmp", {"emptyDir": {}}),  # noqa: S108 - a volume of the pod's own
            "/dev/shm": ("shm", {"emptyDir": {"medium": "Memory"}}),  # noqa: S108 - shared memory of the ranks
        }
        container = {
            "name": name,
            "image": self.image,
            "command": command,
            "env": [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "loopline"}],  # noqa: S108
            **({"envFrom": [{"secretRef": {"name": self.secret}}]} if self.secret else {}),
            "resources": {"requests": {**requests, **memory, **gpus}, "limits": {**memory, **gpus}},
            "securityContext": {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [{"name": volume, "mountPath": path} for path, (volume, _) in volumes.items()],
        }
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": user != 0, "runAsUser": user, "fsGroup": user},
            "containers": [container],
            "volumes": [{"name": volume, **source} for volume, source in volumes.values()],
        }
        joined: dict[str, Any] = _joined(spec, self.pod_template.spec, "pod_template.spec")
        return joined

    def pod_metadata(self, labels: dict[str, str]) -> dict[str, Any]:
        """Return the metadata of a pod with these labels.

        Raises:
            UsageError: `pod_template` has another value for one of them.
        """
        joined: dict[str, Any] = _joined({"labels": labels}, self.pod_template.metadata, "pod_template.metadata")
        return joined

    def _check_queue(self) -> None:
        """Refuse a queue that is not there, in which a job would wait for ever; who may not see queues is believed."""
        try:
            if self.queue:
                self._kubectl("get", "localqueues.kueue.x-k8s.io", self.queue)
        except UsageError as error:
            if "Forbidden" not in str(error):
                raise

    def _create(self, manifest: dict[str, Any], *options: str) -> bool:
        """Create an object unless there is one of its name; return whether it did."""
        try:
            self._kubectl("create", *options, "--filename=-", text=json.dumps(manifest))
        except UsageError as error:
            if "AlreadyExists" not in str(error):
                raise
            return False
        return True

    def _kubectl(self, *words: str, text: str = "") -> str:
        """Run kubectl; see `run_program`."""
        where = [f"--namespace={self.namespace}"] if self.namespace else []
        command = ["kubectl", *words, *where, f"--request-timeout={_COMMAND_S // 2}s"]
        return run_program("Kubernetes", command, _AWAY, timeout_s=_COMMAND_S, text=text)


def _joined(template: Any, further: Any, path: str) -> Any:
    """Return both in one: mappings by their keys, lists of objects by the path or name of each."""
    if isinstance(template, dict) and isinstance(further, dict):
        both = template.keys() & further.keys()
        return {
            **template,
            **further,
            **{key: _joined(template[key], further[key], f"{path}.{key}") for key in sorted(both)},
        }
    if (
        isinstance(template, list)
        and isinstance(further, list)
        and all(isinstance(element, dict) for element in [*template, *further])
    ):
        return list(_joined(_by_name(template), _by_name(further), path).values())
    if template != further:
        raise UsageError(f"places.yaml: {path}: got {further!r}, but Loopline sets it to {template!r}: leave it out")
    return template


def _by_name(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(part.get("mountPath") or part.get("name")): part for part in objects}


def _workspace_of(job: dict[str, Any]) -> str:
    """Return the label of a Job's workspace; empty if an earlier Loopline submitted it."""
    return str(job["metadata"].get("labels", {}).get(_WORKSPACE, ""))


def _claim_of(job: dict[str, Any]) -> str:
    """Return the claim of the volume with a Job's workspace; empty if its pods have no such volume."""
    volumes = job.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", ())
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if volume["name"] == _VOLUME]
    return str(claims[0]) if claims else ""


def _state_of(job: dict[str, Any]) -> State:
    """Return the state that a Job tells of itself."""
    status = job.get("status", {})
    over = [
        condition
        for condition in status.get("conditions", ())
        if condition["type"] in _OVER and condition["status"] == "True"
    ]
    if any(condition.get("reason") == "DeadlineExceeded" for condition in over):
        return "overdue"
    if over or job["metadata"].get("deletionTimestamp"):
        return "ending"
    return "running" if status.get("ready") else "queued"
