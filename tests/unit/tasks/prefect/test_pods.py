"""The jobs of flow runs in pods: their template, and which runs Kubernetes still carries out."""

import json
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.utilities.templating import apply_values

from models.errors import StoreError, UsageError
from tasks.prefect import pods
from tasks.prefect.pods import job_template, require_worker, runs_in_pods, worker_environment
from tasks.ranks.kubernetes import Kubernetes

PLACE = {
    "engine": "kubernetes", "image": "reg/loopline@sha256:0", "claim": "workspace", "mount": "/workspace",
    "namespace": "ml", "secret": "loopline", "queue": "team-a", "memory": "4Gi", "time": "60", "user": 10001,
}  # fmt: skip


TEMPLATE = {
    "metadata": {"annotations": {"team": "a"}},
    "spec": {
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "containers": [{"name": pods.CONTAINER, "env": [{"name": "ZONE", "value": "east"}]}],
    },
}


@pytest.fixture(params=[{}, {"pod_template": TEMPLATE}])
def place(request):
    return Kubernetes.model_validate({**PLACE, **request.param})


def test_what_the_flow_runs_cannot_have_is_refused(workspace):
    further = {"name": "ZONE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    template = {"spec": {"containers": [{"name": pods.CONTAINER, "env": [further]}]}}
    with pytest.raises(UsageError, match="expected an env with a value: put it into the Secret"):
        job_template(workspace, Kubernetes.model_validate({**PLACE, "pod_template": template}))


def test_prefect_makes_a_job_of_the_template_that_kubernetes_takes(place, workspace):
    import kubernetes_validate  # half a second of CPU, which each worker paid when it collected
    from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

    template = job_template(workspace, place)
    defaults = {
        name: one["default"]
        for name, one in template["variables"]["properties"].items()
        if one.get("default") is not None
    }
    configuration = KubernetesWorkerJobConfiguration(**apply_values(template["job_configuration"], defaults))
    configuration.prepare_for_flow_run(FlowRun(id=uuid.uuid4(), name="loop-1", flow_id=uuid.uuid4()))
    job = configuration.job_manifest
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    del pod["parallelism"], pod["completions"]  # Prefect demands them there, and Kubernetes does not know them
    kubernetes_validate.validate(job, "1.34", strict=True)
    assert (job["metadata"]["namespace"], spec["backoffLimit"], spec["activeDeadlineSeconds"]) == ("ml", 0, 3600)
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert pods.RUN_LABEL in job["metadata"]["labels"]
    (container,) = pod["containers"]
    assert (container["command"], container["args"]) == (["python", "-m", "tasks.prefect.pods"], [])
    assert container["envFrom"] == [{"secretRef": {"name": "loopline"}}]
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment["LOOPLINE_HOME"] == str(workspace.root)
    assert environment["HOME"] == "/tmp"
    further = place.pod_template.spec
    assert environment.get("ZONE") == ("east" if further else None)
    assert pod.get("tolerations") == further.get("tolerations")
    assert spec["template"]["metadata"].get("annotations") == place.pod_template.metadata.get("annotations")
    assert environment["PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR"] == "reschedule"


def test_the_servers_secret_is_read_from_the_places_secret(place, monkeypatch):
    monkeypatch.delenv("PREFECT_API_AUTH_STRING", raising=False)
    assert worker_environment(place) == {"PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES": "ml"}
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "ada:secret")
    assert "loopline" in worker_environment(place).values()
    assert "ada:secret" not in str(worker_environment(place))


def test_an_environment_without_prefects_worker_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"no prefect-kubernetes: run `make setup EXTRAS=kubernetes`"):
        require_worker()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A server that answers as Kubernetes' API does, to which the kubeconfig leads."""
    answers = {}

    class Api(BaseHTTPRequestHandler):
        def do_GET(self):
            code, answer = answers[self.path.partition("?")[0]]
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setattr("kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", f"{tmp_path}/config")
        yield answers
        server.shutdown()


def job(run, *conditions):
    status = {"conditions": [{"type": kind, "status": "True"} for kind in conditions]} if conditions else {}
    return {"metadata": {"name": run, "labels": {pods.RUN_LABEL: run}}, "spec": {"template": {}}, "status": status}


def test_runs_whose_job_is_not_over_are_carried_out(place, cluster):
    jobs = [job("a"), job("b", "Failed"), job("c", "Complete"), job("d", "FailureTarget"), job("e", "Suspended")]
    cluster["/apis/batch/v1/namespaces/ml/jobs"] = (200, {"kind": "JobList", "apiVersion": "batch/v1", "items": jobs})
    assert runs_in_pods(place) == {"a", "d", "e"}


def test_a_cluster_that_refuses_is_a_store_error(place, cluster):
    cluster["/apis/batch/v1/namespaces/ml/jobs"] = (403, {"message": "jobs is forbidden"})
    with pytest.raises(StoreError, match=r"jobs of namespace ml .*403.* allow this worker to list jobs"):
        runs_in_pods(place)
