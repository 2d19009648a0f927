"""The manifests are what Kubernetes takes, and kubectl's answers are understood. tests/cluster runs them."""

import contextlib
import json
from pathlib import Path

import kubernetes_validate
import pytest

from models.errors import UsageError
from tasks.ranks import launcher
from tasks.ranks.kubernetes import LOG, SERVICE, Kubernetes
from tasks.ranks.launcher import SchedulerAwayError, Shape

VERSION = "1.34"
SHAPE = Shape((2, 2), 4, 1, 3)
PLACE = {"engine": "kubernetes", "image": "reg/loopline@sha256:0", "claim": "workspace", "mount": "/workspace"}


@pytest.fixture
def place():
    return Kubernetes.model_validate({**PLACE, "namespace": "ml"})


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """A kubectl that answers with what a test says, and writes down how it was called and its input."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def answer(text="", error="", code=0):
        (folder / "answer").write_text(text)
        path = folder / "kubectl"
        path.write_text(
            f'#!/bin/sh\necho "$@" >> {folder}/calls\ncat >> {folder}/input\ncat {folder}/answer\n'
            f"echo '{error}' >&2\nexit {code}\n"
        )
        path.chmod(0o755)
        return folder

    return answer


@pytest.mark.parametrize("more", [{}, {"queue": "team-a", "cpus": 8, "memory": "32Gi", "gpus": 4}])
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_manifests_are_what_kubernetes_takes(more, nodes):
    place = Kubernetes.model_validate({**PLACE, **more})
    job = place.job("0123456789abcdef", Path("/workspace/a 'job'"), Shape((nodes, nodes), 4, 2, 3))
    for manifest in (job, place.service()):
        kubernetes_validate.validate(manifest, VERSION, strict=True)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", nodes, nodes)
    assert pod["subdomain"] == place.service()["metadata"]["name"]
    assert place.service()["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    resources = pod["containers"][0]["resources"]
    assert resources["requests"]["cpu"] == str(more.get("cpus", 8))
    assert resources["limits"] == ({"memory": "32Gi", "nvidia.com/gpu": "4"} if more else {})
    assert job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == more.get("queue")


INFINIBAND = {
    "metadata": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "cloud.provider.com/topology-rack"}},
    "spec": {
        "nodeSelector": {"node.kubernetes.io/instance-type": "h100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [
            {
                "name": "ranks",
                "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}],
                "resources": {"limits": {"rdma/hca_shared": "1"}},
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }
        ],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    },
}


def test_a_pod_template_is_joined_with_what_loopline_sets():
    place = Kubernetes.model_validate({**PLACE, "gpus": 8, "pod_template": INFINIBAND})
    plain = Kubernetes.model_validate({**PLACE, "gpus": 8})
    shape = Shape((2, 2), 8, 1, 0)
    job, own = (each.job("0123456789abcdef", Path("/workspace/job"), shape) for each in (place, plain))
    kubernetes_validate.validate(job, VERSION, strict=True)
    template, pod = job["spec"]["template"], job["spec"]["template"]["spec"]
    assert template["metadata"]["annotations"] == INFINIBAND["metadata"]["annotations"]
    assert place.service()["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert pod["tolerations"] == INFINIBAND["spec"]["tolerations"]
    (container,), (plain_container,) = pod["containers"], own["spec"]["template"]["spec"]["containers"]
    assert container["command"] == plain_container["command"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "rdma/hca_shared": "1"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert [one["name"] for one in container["env"]] == ["HOME", "USER", "NCCL_IB_HCA"]
    assert [one["mountPath"] for one in container["volumeMounts"]] == ["/workspace", "/tmp", "/dev/shm", "/scratch"]
    assert [one["name"] for one in pod["volumes"]] == ["workspace", "tmp", "shm", "scratch"]


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy: got 'Always', but Loopline sets it to 'Never'"),
        (
            {"spec": {"containers": [{"name": "ranks", "command": ["sh"]}]}},
            r"spec.containers.ranks.command: got \['sh'",
        ),
        (
            {"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}},
            "metadata.labels.app.kubernetes.io/managed-by",
        ),
        ({"spec": {"containers": {"name": "ranks"}}}, "spec.containers: got {'name': 'ranks'}, but Loopline sets it"),
    ],
)
def test_a_pod_template_that_contradicts_is_refused(template, path):
    place = Kubernetes.model_validate({**PLACE, "pod_template": template})
    with pytest.raises(UsageError, match=rf"places\.yaml: pod_template\.{path}"):
        place.job("0123456789abcdef", Path("/workspace/job"), SHAPE)


def test_a_manifest_with_an_unknown_key_is_refused(place):
    job = place.job("0123", Path("/workspace/job"), SHAPE)
    job["spec"]["completionmode"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSION, strict=True)


def test_every_pod_runs_the_same_command_with_the_images_python(place):
    job = place.job("0123", Path("/workspace/a 'job'"), SHAPE)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    shell, option, script = container["command"]
    assert (shell, option) == ("sh", "-c")
    for words in (" python -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --max-restarts=3 ",
                  f"--rdzv-endpoint=loopline-0123-0.{SERVICE}:29400", f"job'\"'\"'/{LOG}' 2>&1; exec env"):  # fmt: skip
        assert words in script


@pytest.mark.parametrize(("named", "user"), [(None, 1234), (10001, 10001), (0, 0)])
def test_the_pods_are_of_the_user_who_submits_unless_the_place_names_another(monkeypatch, named, user):
    monkeypatch.setattr("os.getuid", lambda: 1234)
    place = Kubernetes.model_validate({**PLACE, "user": named})
    pod = place.job("0123", Path("/workspace/job"), SHAPE)["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": user > 0, "runAsUser": user, "fsGroup": user}


def test_the_first_pod_is_the_host_also_before_its_name_is_known(place):
    job = place.job("0123", Path("/workspace/job"), SHAPE)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (
        '--rdzv-conf=is_host=$(test "$JOB_COMPLETION_INDEX" = 0 && echo true || echo false) -m models'
        in (container["command"][2])
    )


def test_a_job_is_created_with_its_service_in_the_namespace(place, kubectl, tmp_path):
    folder = kubectl()
    said = place.submit("0123", tmp_path, SHAPE)
    assert "submitted loopline-0123 to Kubernetes: 2 pod(s)" in said
    calls = (folder / "calls").read_text().splitlines()
    assert calls == ["create --filename=- --namespace=ml --request-timeout=30s"] * 2
    decoder, text = json.JSONDecoder(), (folder / "input").read_text()
    service, end = decoder.raw_decode(text)
    job, _ = decoder.raw_decode(text[end:])
    assert [service["kind"], job["kind"], job["metadata"]["name"]] == ["Service", "Job", "loopline-0123"]


def taken(folder, job):
    """Let a job of the name be there."""
    (folder / "job").write_text(json.dumps(job))
    (folder / "kubectl").write_text(
        f"""#!/bin/sh
[ $1 = get ] && exec cat {folder}/job
echo 'Error from server (AlreadyExists): jobs.batch "loopline-0123-4" already exists' >&2
exit 1
"""
    )


def test_a_name_that_is_taken_is_attached_to(place, kubectl, tmp_path):
    taken(kubectl(), place.job("0123-4", tmp_path, SHAPE))
    place.submit("0123-4", tmp_path, SHAPE)
    place.check()


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"claim": "theirs"}, "a job of the workspace 0123 on the claim theirs"),  # a copied workspace
        ({}, "a job of the workspace 4567 on the claim workspace"),
    ],
)
def test_a_name_that_another_workspace_has_taken_is_refused(place, kubectl, tmp_path, change, got):
    theirs = place.model_copy(update=change).job("0123-4", tmp_path, SHAPE)
    if not change:
        theirs["metadata"]["labels"]["loopline/workspace"] = "4567"
    taken(kubectl(), theirs)
    refused = rf"{got}, expected one of 0123 on workspace: .*mount this one elsewhere, or name another namespace"
    with pytest.raises(UsageError, match=refused):
        place.submit("0123-4", tmp_path, SHAPE)
    with pytest.raises(UsageError, match=refused):
        place.state("0123-4")


def test_a_job_of_an_earlier_loopline_on_this_volume_is_ours(place, kubectl, tmp_path):
    earlier = place.job("0123", tmp_path, SHAPE)
    earlier["metadata"] = {"name": "loopline-0123"}
    taken(kubectl(), earlier)
    assert place.state("0123") == "queued"


def test_a_job_names_its_workspace_and_its_folder(place):
    metadata = place.job("0123-4", Path("/workspace/a 'job'"), SHAPE)["metadata"]
    assert metadata["labels"]["loopline/workspace"] == "0123"
    assert metadata["annotations"] == {"loopline/folder": "/workspace/a 'job'"}


def test_a_number_of_nodes_that_varies_is_refused(place, kubectl, tmp_path):
    folder = kubectl()
    with pytest.raises(UsageError, match=r"train.nodes: got 1:4, expected one number: a job of Kubernetes"):
        place.submit("0123", tmp_path, Shape((1, 4), 1, 1, 3))
    assert not (folder / "calls").exists()


@pytest.mark.parametrize(
    ("job", "state"),
    [
        (None, "ended"),
        ({}, "queued"),
        ({"active": 2, "ready": 0}, "queued"),
        ({"active": 2, "ready": 2}, "running"),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, "queued"),
        ({"conditions": [{"type": "Suspended", "status": "False"}], "ready": 1}, "running"),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "ending"),
        ({"conditions": [{"type": "Failed", "status": "True"}], "ready": 1}, "ending"),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}, "overdue"),
    ],
)
def test_states(place, kubectl, job, state):
    folder = kubectl("" if job is None else json.dumps({"metadata": {}, "status": job}))
    assert place.state("0123") == state
    assert (folder / "calls").read_text().startswith("get job loopline-0123 --ignore-not-found --output=json")


def test_a_job_that_is_being_deleted_is_not_attached_to(place, kubectl):
    kubectl(json.dumps({"metadata": {"deletionTimestamp": "2026-11-24T12:00:00Z"}, "status": {"ready": 2}}))
    assert place.state("0123") == "ending"


@pytest.mark.parametrize(
    "error",
    [
        "Unable to connect to the server: dial tcp: lookup k8s: no such host",
        "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
        "Unable to connect to the server: net/http: TLS handshake timeout",
    ],
)
def test_an_api_server_that_is_away_is_a_state(place, kubectl, tmp_path, error):
    kubectl(error=error, code=1)
    assert place.state("0123") == "unknown"
    with pytest.raises(SchedulerAwayError, match="Kubernetes is away"):
        place.submit("0123", tmp_path, SHAPE)
    place.check()


def test_what_kubernetes_refuses_is_an_error_before_anything_runs(place, kubectl):
    folder = kubectl(error='Error from server (NotFound): namespaces "ml" not found', code=1)
    with pytest.raises(UsageError, match=r"kubectl create: Kubernetes refuses it: .*namespaces .ml. not found"):
        place.check()
    assert "create --dry-run=server" in (folder / "calls").read_text()


def test_a_forbidden_job_is_found_also_where_the_service_is_there_already(place, kubectl):
    folder = kubectl()
    (folder / "kubectl").write_text(
        """#!/bin/sh
case "$(cat)" in
  *'"kind": "Service"'*) echo 'Error from server (AlreadyExists): services "loopline-ranks" already exists' >&2;;
  *) echo 'Error from server (Forbidden): jobs.batch is forbidden' >&2;;
esac
exit 1
"""
    )
    with pytest.raises(UsageError, match=r"jobs\.batch is forbidden"):
        place.check()


def test_a_kubectl_that_does_not_run_or_talks_nonsense_is_an_error_with_its_words(place, kubectl, monkeypatch):
    folder = kubectl(text="Welcome!")
    with pytest.raises(UsageError, match="got 'Welcome!', expected a Job as JSON"):
        place.state("0123")
    (folder / "kubectl").write_text("#!/bin/sh\nprintf 'caf\\351' >&2; exit 1\n")
    with pytest.raises(UsageError, match="refuses it: caf\N{REPLACEMENT CHARACTER}"):
        place.state("0123")
    monkeypatch.setenv("PATH", str(folder))
    (folder / "kubectl").chmod(0o644)
    with pytest.raises(UsageError, match=r"kubectl: cannot be run \(Permission denied\)"):
        place.state("0123")


BAD_STATUS = ("null", '{"conditions": [{}]}')


@pytest.mark.parametrize("shape", ["[]", "3", "{}", *(f'{{"metadata": {{}}, "status": {one}}}' for one in BAD_STATUS)])
def test_json_of_another_shape_is_an_error_with_its_cure(place, kubectl, shape):
    kubectl(text=shape)
    with pytest.raises(UsageError, match=r"kubectl get job loopline-0123: got .*, expected a Job as JSON: correct the"):
        place.state("0123")


@pytest.mark.parametrize(("time", "seconds"), [("90", 5400), ("12:00:00", 43200)])
def test_a_time_limit_ends_the_job_and_is_seen_by_who_waits(time, seconds):
    place = Kubernetes.model_validate({**PLACE, "time": time})
    job = place.job("0123", Path("/workspace/job"), SHAPE)
    kubernetes_validate.validate(job, VERSION, strict=True)
    assert job["spec"]["activeDeadlineSeconds"] == seconds
    assert job["spec"]["ttlSecondsAfterFinished"] > launcher._MOST_LOOKS * launcher._LOOK_S


def test_a_time_limit_of_zero_is_none_as_for_sbatch():
    assert (
        "activeDeadlineSeconds"
        not in Kubernetes.model_validate({**PLACE, "time": "0"}).job("0123", Path("/workspace/job"), SHAPE)["spec"]
    )


def test_a_job_is_deleted_with_its_pods(place, kubectl):
    folder = kubectl()
    place.cancel("0123")
    assert "delete job loopline-0123 --ignore-not-found --wait=false --cascade=foreground" in (
        (folder / "calls").read_text()
    )


@pytest.mark.parametrize(
    ("error", "is_refused"),
    [
        ('Error from server (NotFound): localqueues.kueue.x-k8s.io "team-a" not found', True),
        ('error: the server doesn\'t have a resource type "localqueues"', True),
        ("Error from server (Forbidden): localqueues.kueue.x-k8s.io is forbidden", False),
    ],
)
def test_a_queue_that_is_not_there_is_refused(place, kubectl, error, is_refused):
    folder = kubectl()
    (folder / "kubectl").write_text(
        f"#!/bin/sh\ncase $1 in get) [ $3 = team-a ] && echo '{error.replace(chr(39), chr(34))}' >&2; exit 1;; esac\n"
    )
    queued = place.model_copy(update={"queue": "team-a"})
    with pytest.raises(UsageError, match="localqueues") if is_refused else contextlib.nullcontext():
        queued.check()
    place.model_copy(update={"queue": None}).check()
