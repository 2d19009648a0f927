"""Kueue on a test's Kubernetes: its controller runs beside the control plane, and has one queue of two CPUs."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from models.files import write_json
from tests.kubernetes_cluster import BINARIES, START_S, KubernetesCluster

QUEUE, URGENT = "team-a", "urgent"
CPUS = 2
_PROGRAM, _MANIFESTS = "kueue-manager", "kueue.yaml"
# Of all that Kueue watches over, what is here: others' webhooks need types that this cluster does not have.
_TYPES = {"clusterqueues", "cohorts", "jobs", "resourceflavors", "workloads"}
_HOST = "127.0.0.1"
_API = "kueue.x-k8s.io/v1beta2"


def why_not() -> str:
    """Why Kueue cannot run here; empty if it can."""
    folder = Path(os.environ.get(BINARIES, "."))
    missing = [name for name in (_PROGRAM, _MANIFESTS) if not (folder / name).exists()]
    return f"no {', '.join(missing)}: `tests/cluster/build_kueue.sh FOLDER` makes them" if missing else ""


def start_kueue(cluster: KubernetesCluster) -> None:
    """Start Kueue on a cluster, which ends it, and make its queue."""
    folder = cluster.folder / "kueue"
    certificates = folder / "etc" / "kueue" / "metrics" / "certs"  # Kueue's own path, though it serves no metrics here
    certificates.mkdir(parents=True)
    with socket.create_server((_HOST, 0)) as free:
        port = free.getsockname()[1]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kueue", "-addext",
         f"subjectAltName=IP:{_HOST}", "-keyout", certificates / "tls.key", "-out", certificates / "tls.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    binaries = Path(os.environ[BINARIES])
    authority = base64.b64encode((certificates / "tls.crt").read_bytes()).decode()
    for manifest in yaml.safe_load_all((binaries / _MANIFESTS).read_text()):
        if is_needed := _adapted(manifest, f"https://{_HOST}:{port}", authority):
            cluster.create(is_needed)
    write_json(
        folder / "config.json",
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
         "health": {"healthProbeBindAddress": "0"}, "metrics": {"bindAddress": "0"},
         "webhook": {"host": _HOST, "port": port, "certDir": str(certificates)},
         "internalCertManagement": {"enable": False}, "leaderElection": {"leaderElect": False},
         "integrations": {"frameworks": ["batch/job"]}, "featureGates": {"VisibilityOnDemand": False}},
    )  # fmt: skip
    program = f"{binaries / _PROGRAM} --config={folder / 'config.json'} --kubeconfig={cluster.kubeconfig}"
    cluster.start("unshare", "--mount", "bash", "-c", f"mount --bind {folder}/etc /etc && exec {program}", key=_PROGRAM)
    for manifest in _queues():
        _create_when_it_answers(cluster, manifest)


def _adapted(manifest: dict[str, Any], server: str, authority: str) -> dict[str, Any] | None:
    """Return a manifest with webhooks that are called by address, as there is no proxy for services; or None."""

    def call(client: dict[str, Any]) -> None:
        client["url"] = server + client.pop("service")["path"]
        client["caBundle"] = authority

    if manifest["kind"] == "CustomResourceDefinition":
        if conversion := manifest["spec"].get("conversion"):
            call(conversion["webhook"]["clientConfig"])
        return manifest
    if manifest["kind"] not in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        return None
    manifest["webhooks"] = [
        webhook for webhook in manifest["webhooks"] if webhook["rules"][0]["resources"][0] in _TYPES
    ]
    for webhook in manifest["webhooks"]:
        call(webhook["clientConfig"])
    return manifest


def _queues() -> list[dict[str, Any]]:
    def made(kind: str, name: str, **rest: Any) -> dict[str, Any]:
        return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, **rest}

    quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": CPUS}]}
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
    }
    return [
        made("ResourceFlavor", "default"),
        made("ClusterQueue", "team", spec=spec),
        made("LocalQueue", QUEUE, spec={"clusterQueue": "team"}),
        made("WorkloadPriorityClass", URGENT, value=1000, description="above all others"),
    ]


def _create_when_it_answers(cluster: KubernetesCluster, manifest: dict[str, Any]) -> None:
    end, log = time.monotonic() + START_S, cluster.folder / f"{_PROGRAM}.log"
    while cluster.processes[_PROGRAM].poll() is None and time.monotonic() < end:
        with contextlib.suppress(AssertionError):
            return cluster.create(manifest)
        time.sleep(0.5)
    raise AssertionError(f"Kueue does not answer: {log.read_text()[-5000:]}")
