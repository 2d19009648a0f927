"""Training in two pods, on two nodes of a real Kubernetes."""

import contextlib
import time

import pytest

from models.errors import TrainingError, UsageError
from tasks.ranks.kubernetes import LOG, Kubernetes
from tasks.ranks.launcher import Shape
from tasks.ranks.launcher_suite import EPOCHS, PATIENCE_S
from tests.cluster_loops import (
    LOOP_S,
    OnCluster,
    assert_one_version_as_if_whole,
    once,
    run_penguins,
    trained,
    wait_for_checkpoint,
)
from tests.empty_image import IMAGE
from tests.kubernetes_cluster import NODES
from tests.kueue import CPUS, QUEUE, URGENT
from tests.launcher_contract import LauncherContract
from tests.running import eventually

pytestmark = pytest.mark.timeout(900)


class OnKubernetes(OnCluster):
    """Two pods."""

    def __init__(self, cluster, place):
        super().__init__(cluster, Kubernetes.model_validate(place))

    def jobs(self):
        """The names and ids of the jobs there are."""
        return [(job["metadata"]["name"], job["metadata"]["uid"]) for job in self.cluster.items("jobs")]

    def pod(self, index):
        """The name and the node of the running pod of an index."""
        (pod,) = self.cluster.items("pods", f"--selector=batch.kubernetes.io/job-completion-index={index}")
        return pod["metadata"]["name"], pod["spec"]["nodeName"]

    def evict(self, index):
        """Evict a pod, as a drain of its node or a pod of a higher priority does: with SIGTERM."""
        name = self.pod(index)[0]
        address = f"/api/v1/namespaces/default/pods/{name}/eviction"
        text = f'{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{name}"}}}}'
        self.cluster.kubectl("create", f"--raw={address}", "--filename=-", text=text)


@contextlib.contextmanager
def staged(cluster, place, folder):
    """Two pods; then there are none, and what they said is shown."""
    stage = OnKubernetes(cluster, place)
    yield stage
    for log in folder.rglob(LOG):
        print(log.read_text()[-5000:])
    print(cluster.kubectl("get", "pods,jobs", "--output=wide"))
    cluster.kubectl("delete", "jobs", "--all", "--cascade=foreground", "--timeout=50s")


class TestKubernetes(LauncherContract):
    @pytest.fixture
    def stage(self, kubernetes, place, tmp_path):
        with staged(kubernetes, place, tmp_path) as stage:
            yield stage

    def test_the_pods_are_on_two_nodes_and_a_second_submit_attaches(self, stage, job, expected):
        seen = []

        def submit_again():
            stage.place.submit(stage.jobs()[0][0].removeprefix("loopline-"), job().folder, shape)
            seen.append((stage.jobs(), sorted(stage.pod(index)[1] for index in (0, 1))))

        shape = Shape((2, 2), 1, 1, 3)
        assert stage.train(job(), once(2, submit_again)).weights_sha256 == expected
        ((jobs, nodes),) = seen
        assert len(jobs) == 1
        assert nodes == list(NODES)

    @pytest.mark.parametrize("index", [0, 1])
    def test_an_evicted_pod_is_made_again_and_goes_on_from_the_checkpoint(self, stage, job, expected, index):
        result = stage.train(job(), once(4, lambda: stage.evict(index)))
        assert result.weights_sha256 == expected
        assert result.resumed_from

    def test_a_job_that_kueue_takes_back_is_queued_and_goes_on_from_the_checkpoint(self, stage, job, expected):
        """Without Kueue: its part is done by hand, for it preempts and admits a job by `suspend`."""
        seen = []

        def suspend(name, is_suspended):
            stage.cluster.kubectl("patch", "job", name, f'--patch={{"spec": {{"suspend": {is_suspended}}}}}')

        def preempt():
            (of_queue,) = stage.cluster.items("jobs", "--selector=kueue.x-k8s.io/queue-name=team-a")
            name = of_queue["metadata"]["name"]
            suspend(name, "true")
            eventually(lambda: not stage.cluster.items("pods"))
            seen.append(stage.place.state(name.removeprefix("loopline-")))
            suspend(name, "false")

        stage.place = stage.place.model_copy(update={"queue": "team-a"})
        result = stage.train(job(), once(4, preempt))
        assert seen == ["queued"]
        assert result.weights_sha256 == expected
        assert result.resumed_from

    def test_a_deleted_pod_is_made_again(self, stage, job, expected):
        result = stage.train(
            job(), once(4, lambda: stage.cluster.kubectl("delete", "pod", stage.pod(1)[0], "--wait=false"))
        )
        assert result.weights_sha256 == expected
        assert result.resumed_from

    def test_the_api_server_may_be_away_meanwhile(self, stage, job, expected):
        def back(line):
            stage.said.append(line)
            if "is away" in line:
                stage.cluster.start_server()

        stage.cluster.kill("kube-apiserver")
        result = stage.train(job(), once(2, lambda: stage.cluster.kill("kube-apiserver")), back)
        assert result.weights_sha256 == expected
        if stage.cluster.processes["kube-apiserver"].poll() is not None:
            stage.cluster.start_server()
        stage.cluster.wait()
        assert any("is away" in line for line in stage.said)

    def test_a_lost_node_is_replaced_when_it_is_taken_out_of_the_cluster(self, stage, job, expected):
        lost = []

        def lose():
            lost.append(stage.pod(1)[1])
            stage.cluster.kill_node(lost[0])
            stage.cluster.kubectl("delete", "node", lost[0])

        try:
            result = stage.train(job(), once(4, lose))
        finally:
            stage.cluster.start_node(lost[0])
            stage.cluster.wait()
        assert result.weights_sha256 == expected
        assert result.resumed_from

    def test_a_time_limit_ends_the_job_and_is_said(self, stage, job):
        stage.place = stage.place.model_copy(update={"time": "0:40"})
        with pytest.raises(TrainingError, match="was ended by the time limit of its place"):
            stage.train(job(epochs=50_000))
        assert stage.jobs() == []

    def test_a_job_that_is_deleted_is_an_error_that_names_its_log(self, stage, job):
        with pytest.raises(TrainingError, match="ended without a result: see the log there"):
            stage.train(
                job(epochs=5000), once(2, lambda: stage.cluster.kubectl("delete", "jobs", "--all", "--wait=false"))
            )
        stage.place.check()
        stage.place = stage.place.model_copy(update={"namespace": "nowhere"})
        with pytest.raises(UsageError, match=r"namespaces .*nowhere.* not found"):
            stage.place.check()


def test_a_whole_loop_whose_pods_are_evicted_ends_with_the_weights_of_one_that_was_not(
    kubernetes, place, whole, tmp_path
):
    home, stage = tmp_path / "home", OnKubernetes(kubernetes, place)
    loop = run_penguins(home, place, "train.on=cluster", "train.nodes=2")
    try:
        wait_for_checkpoint(home, lambda: loop.poll() is None)
        stage.evict(1)
        assert loop.wait(LOOP_S) == 0
    finally:
        loop.kill()
        loop.wait()
    assert trained(home)["resumed_from"], "it was killed before its first checkpoint, or began anew"
    assert_one_version_as_if_whole(home, whole)
    assert len(trained(home)["epochs"]) > EPOCHS


def test_the_trials_of_a_search_are_jobs(kubernetes, place, tmp_path):
    settings = ["search.trials=3", "search.workers=2", "search.on=cluster", "search.epochs=50", "train.epochs=5"]
    loop = run_penguins(tmp_path, place, *settings, "search.pruner=none")
    seen = set()
    try:
        end = time.monotonic() + PATIENCE_S + 300
        while loop.poll() is None:
            assert time.monotonic() < end
            seen |= {job["metadata"]["uid"] for job in kubernetes.items("jobs")}
            time.sleep(0.5)
        assert loop.returncode == 0
    finally:
        loop.kill()
        loop.wait()
    assert len(seen) == 3


class TestKueue:
    """Jobs in a queue of Kueue; last in this file, for Kueue stays on the cluster."""

    expected, job = LauncherContract.expected, LauncherContract.job

    @pytest.fixture
    def stage(self, queued, place, tmp_path):
        with staged(queued, {**place, "queue": QUEUE}, tmp_path) as stage:
            yield stage

    def urgent(self, stage):
        """Fill the queue for some seconds with a job that goes before all others."""
        container = {
            "name": "urgent", "image": IMAGE, "command": ["sleep", "5"], "resources": {"requests": {"cpu": str(CPUS)}}
        }  # fmt: skip
        pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        labels = {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": URGENT}
        metadata = {"name": "urgent", "labels": labels}
        stage.cluster.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod}})

    def conditions(self, stage, name):
        """Kueue's conditions of a job: each one's status and reason."""
        shown = [
            each["status"].get("conditions", ())
            for each in stage.cluster.items("workloads")
            if each["metadata"]["ownerReferences"][0]["name"] == name
        ]
        return {each["type"]: (each["status"], each["reason"]) for each in (shown or [()])[0]}

    def test_a_job_is_admitted_preempted_and_admitted_again(self, stage, job, expected):
        seen = []

        def preempt():
            ((name, _),) = stage.jobs()
            seen.append(self.conditions(stage, name)["Admitted"][0])
            self.urgent(stage)
            eventually(lambda: self.conditions(stage, name).get("Preempted", ("False", ""))[0] == "True")
            eventually(lambda: stage.place.state(name.removeprefix("loopline-")) == "queued")
            seen.append(self.conditions(stage, name)["Evicted"])
            eventually(lambda: self.conditions(stage, "urgent").get("Finished", ("False", ""))[0] == "True")

        result = stage.train(job(), once(4, preempt))
        assert seen == ["True", ("True", "Preempted")]
        assert result.weights_sha256 == expected
        assert result.resumed_from

    def test_all_pods_of_a_job_start_or_none(self, stage, job):
        folder = job().folder
        folder.mkdir(parents=True)
        stage.place.submit("large", folder, Shape((CPUS + 1, CPUS + 1), 1, 1, 3))
        eventually(lambda: self.conditions(stage, "loopline-large").get("QuotaReserved", ("", ""))[0] == "False")
        assert stage.place.state("large") == "queued"
        assert stage.cluster.items("pods") == []

    def test_a_queue_that_is_not_there_is_refused(self, stage):
        stage.place.check()
        stage.place = stage.place.model_copy(update={"queue": "nowhere"})
        with pytest.raises(UsageError, match=r"localqueues.* nowhere.*not found"):
            stage.place.check()
