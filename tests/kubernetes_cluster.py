"""A Kubernetes cluster of a test's own: the control plane here, two nodes in network namespaces, one file system.

etcd, the API server, the controllers, the scheduler, the kubelets, containerd and runc are the real ones. Two things
are not: the image is empty and the containers see this machine's programs, and `cluster_names` answers for CoreDNS.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.cluster_names import serve_names
from tests.empty_image import IMAGE, base_spec, write_image

BINARIES = "KUBERNETES_BINARIES"
"""Environment variable: the folder that `tests/cluster/build_kubernetes.sh` filled."""
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
PROGRAMS = ("etcd", "containerd", "ctr", "runc", "kubectl", "openssl", "ip", "nsenter", "unshare")
PLUGINS = Path("/usr/lib/cni")
NODES = ("n1", "n2")
NETWORK, POD_NETWORK, BRIDGE = "10.78.4", "10.79", "llk0"
CLAIM = "workspace"
START_S = 120
_CGROUPS = Path("/sys/fs/cgroup")
_TUNABLES = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
             "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")  # fmt: skip
_API, _ETCD = 16443, 23790
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

_CONTAINERD = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{folder}/spec.json"
"""
_NODE = """\
set -e
mount --make-rprivate / && mount --make-rshared /
mount -t tmpfs none /run/netns
mkdir -p /var/lib/kubelet /var/lib/cni && mount -t tmpfs none /var/lib/kubelet && mount -t tmpfs none /var/lib/cni
sysctl -qw net.ipv4.ip_forward=1
containerd --config {folder}/containerd.toml > {folder}/containerd.log 2>&1 &
until ctr --address {folder}/containerd.sock version > {folder}/ctr.log 2>&1; do sleep 0.2; done
ctr --address {folder}/containerd.sock --namespace k8s.io images import {image} > {folder}/ctr.log 2>&1
exec {kubelet} --config={folder}/kubelet.json --kubeconfig={kubeconfig} --hostname-override={name} \
  --node-ip={address} --root-dir=/var/lib/kubelet --cert-dir={folder}/certs > {folder}/kubelet.log 2>&1
"""


def why_not() -> str:
    """Why no cluster can be made on this machine; empty if it can."""
    where = f"{os.environ.get(BINARIES, '')}:{_PATH}"
    if missing := [name for name in KUBERNETES if not shutil.which(name, path=where)]:
        return (
            f"no {', '.join(missing)}: `tests/cluster/build_kubernetes.sh FOLDER` builds them; then {BINARIES}=FOLDER"
        )
    missing = [name for name in PROGRAMS if not shutil.which(name, path=_PATH)]
    if missing or not (PLUGINS / "bridge").exists():
        packages = "etcd-server, containerd, runc, containernetworking-plugins, kubernetes-client, openssl, iproute2"
        return f"no {', '.join(missing) or PLUGINS / 'bridge'}: install {packages}"
    if not (_CGROUPS / "memory").exists():
        return f"{_CGROUPS}: the groups of this machine are not of version 1, for which the nodes are set up"
    return "" if os.geteuid() == 0 else "network namespaces need root"


class KubernetesCluster:
    """A running cluster; `environment` is what kubectl needs to find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.environment = {"KUBECONFIG": str(self.kubeconfig)}
        self.token = secrets.token_hex(16)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def kubectl(self, *words: str, text: str = "") -> str:
        """Run kubectl; gives what it prints."""
        done = subprocess.run(
            ["kubectl", *words], input=text, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, **self.environment},
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def items(self, kind: str, *words: str) -> list[dict[str, Any]]:
        """The objects of a kind in the default namespace."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "--output=json", *words))["items"]
        return found

    def create(self, *manifests: dict[str, Any]) -> None:
        """Create objects."""
        for manifest in manifests:
            self.kubectl("create", "--filename=-", text=json.dumps(manifest))

    def start_server(self) -> None:
        """Start the API server."""
        self.start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{_ETCD}", f"--secure-port={_API}",
            f"--advertise-address={NETWORK}.1", "--bind-address=0.0.0.0", f"--cert-dir={self.folder}/certs",
            f"--service-account-key-file={self.folder}/sa.key",
            f"--service-account-signing-key-file={self.folder}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc", f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC", "--service-cluster-ip-range=10.80.0.0/16",
            "--kubelet-preferred-address-types=InternalIP", "--disable-admission-plugins=ServiceAccount",
            "--default-not-ready-toleration-seconds=3",
            "--default-unreachable-toleration-seconds=3",
        )  # fmt: skip

    def kill(self, name: str) -> None:
        """Kill a program of the control plane."""
        self.processes[name].kill()
        self.processes[name].wait()

    def start(self, name: str, *words: str, key: str = "") -> None:
        """Start a program of the control plane, or another one that is known by `key` then."""
        binary = shutil.which(name, path=f"{os.environ.get(BINARIES, '')}:{_PATH}")
        assert binary, name
        with (self.folder / f"{key or name}.log").open("ab") as log:
            self.processes[key or name] = subprocess.Popen(
                [binary, *words], stdout=log, stderr=log, start_new_session=True
            )

    def start_node(self, name: str) -> None:
        """Start a node: containerd and a kubelet in namespaces of their own."""
        folder, number = self.folder / name, 11 + NODES.index(name)
        values = {
            "folder": folder, "kubeconfig": self.kubeconfig, "name": name, "address": f"{NETWORK}.{number}",
            "image": self.folder / "image.tar",
            "kubelet": shutil.which("kubelet", path=f"{os.environ.get(BINARIES, '')}:{_PATH}"),
        }  # fmt: skip
        inside = ["nsenter", f"--net=/run/netns/{BRIDGE}-{name}", "unshare", "--mount", "bash", "-c"]
        with (folder / "node.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*inside, _NODE.format(**values)], stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PATH": _PATH},
            )  # fmt: skip

    def kill_node(self, name: str) -> None:
        """Kill everything that runs on a node, as a loss of its power does."""
        for process in _processes_of(self.folder, name):
            process.kill()
        self.processes[name].wait()

    def wait(self) -> None:
        """Wait until the API server answers and all nodes are ready."""
        _until(lambda: _answers(self), "the API server did not start", self.folder / "kube-apiserver.log")
        log = self.folder / NODES[0] / "kubelet.log"
        _until(lambda: len(self.ready_nodes()) == len(NODES), "the nodes did not come", log)

    def ready_nodes(self) -> list[str]:
        """The names of the nodes that are ready."""
        try:
            nodes = self.items("nodes")
        except AssertionError:
            return []
        return [
            node["metadata"]["name"]
            for node in nodes
            if {"type": "Ready", "status": "True"}.items() <= _condition(node, "Ready").items()
        ]


@contextlib.contextmanager
def kubernetes_cluster(shared: Path) -> Iterator[KubernetesCluster]:
    """A cluster of two nodes whose claim `workspace` is the folder `shared`; everything of it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="kube", dir="/tmp"))
    cluster = KubernetesCluster(folder)
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in _TUNABLES:  # the kubelet sets them for the whole machine
            path = Path("/proc/sys") / name
            ending.callback(path.write_text, path.read_text())
        _network(ending)
        ending.callback(_clear_groups)
        ending.callback(_end_processes, cluster)
        _write_configuration(cluster)
        with (folder / "etcd.log").open("ab") as log:
            cluster.processes["etcd"] = subprocess.Popen(
                ["etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{_ETCD}",
                 f"--advertise-client-urls=http://127.0.0.1:{_ETCD}",
                 f"--listen-peer-urls=http://127.0.0.1:{_ETCD + 1}"],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        cluster.start_server()
        _until(lambda: _answers(cluster), "the API server did not start", folder / "kube-apiserver.log")
        cluster.start(
            "kube-controller-manager", f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false",
            f"--service-account-private-key-file={folder}/sa.key", f"--cert-dir={folder}/certs",
            "--node-monitor-grace-period=10s", "--node-monitor-period=2s",
        )  # fmt: skip
        cluster.start("kube-scheduler", f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false")
        ending.enter_context(serve_names(f"{NETWORK}.1", f"https://127.0.0.1:{_API}", cluster.token))
        for name in NODES:
            cluster.start_node(name)
        _until(
            lambda: len(cluster.ready_nodes()) == len(NODES), "the nodes did not come", folder / "n1" / "kubelet.log"
        )
        _share(cluster, shared)
        yield cluster


def write_kubeconfig(path: Path, token: str) -> None:
    """Write the configuration of kubectl for whoever has a token."""
    server = {"server": f"https://{NETWORK}.1:{_API}", "insecure-skip-tls-verify": True}
    path.write_text(
        json.dumps(
            {"apiVersion": "v1", "kind": "Config", "current-context": "test",
             "clusters": [{"name": "test", "cluster": server}],
             "users": [{"name": "user", "user": {"token": token}}],
             "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user", "namespace": "default"}}]}
        )
    )  # fmt: skip


def _share(cluster: KubernetesCluster, shared: Path) -> None:
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    cluster.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM},
         "spec": {"capacity": size, "accessModes": modes, "hostPath": {"path": str(shared)}, "storageClassName": ""}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM},
         "spec": {"accessModes": modes, "resources": {"requests": size}, "volumeName": CLAIM, "storageClassName": ""}},
    )  # fmt: skip


def _condition(thing: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((each for each in thing["status"].get("conditions", ()) if each["type"] == kind), {})


def _answers(cluster: KubernetesCluster) -> bool:
    with contextlib.suppress(AssertionError):
        return cluster.kubectl("get", "--raw", "/readyz") == "ok"
    return False


def _network(ending: contextlib.ExitStack) -> None:
    def ip(*words: str, check: bool = True) -> None:
        subprocess.run(["ip", *words], check=check, capture_output=True, env={**os.environ, "PATH": _PATH})

    def clear() -> None:
        for name in NODES:
            ip("link", "del", f"llk{name}", check=False)
            ip("netns", "del", f"{BRIDGE}-{name}", check=False)
        ip("link", "del", BRIDGE, check=False)

    clear()
    ending.callback(clear)
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for number, name in enumerate(NODES, 11):
        space = f"{BRIDGE}-{name}"
        ip("netns", "add", space)
        ip("link", "add", f"llk{name}", "type", "veth", "peer", "name", "e0", "netns", space)
        ip("link", "set", f"llk{name}", "master", BRIDGE, "up")
        ip("route", "add", f"{POD_NETWORK}.{number}.0/24", "via", f"{NETWORK}.{number}")
        for words in (["addr", "add", f"{NETWORK}.{number}/24", "dev", "e0"], ["link", "set", "e0", "up"],
                      ["link", "set", "lo", "up"], ["route", "add", "default", "via", f"{NETWORK}.1"],
                      *(["route", "add", f"{POD_NETWORK}.{other}.0/24", "via", f"{NETWORK}.{other}"]
                        for other in range(11, 11 + len(NODES)) if other != number)):  # fmt: skip
            ip("-n", space, *words)


def _write_configuration(cluster: KubernetesCluster) -> None:
    folder = cluster.folder
    subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f"{cluster.token},admin,admin,system:masters\n")
    write_kubeconfig(cluster.kubeconfig, cluster.token)
    (folder / "resolv.conf").write_text("")
    write_image(folder / "image.tar")
    for number, name in enumerate(NODES, 11):
        place = folder / name
        (place / "cni").mkdir(parents=True)
        (place / "containerd.toml").write_text(_CONTAINERD.format(folder=place, image=IMAGE, plugins=PLUGINS))
        (place / "spec.json").write_text(json.dumps(base_spec()))
        ranges = [[{"subnet": f"{POD_NETWORK}.{number}.0/24"}]]
        ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "ipam": ipam}
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (place / "cni" / "pods.conflist").write_text(json.dumps(network))
        (place / "kubelet.json").write_text(json.dumps(_kubelet(folder, name)))
        for controller in _controllers():
            (controller / f"loopline-{name}").mkdir(exist_ok=True)


def _kubelet(folder: Path, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{folder}/{name}/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/loopline-{name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [f"{NETWORK}.1"],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "50Mi"},
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
    }


def _controllers() -> list[Path]:
    return [path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _clear_groups() -> None:
    for controller in _controllers():
        for name in NODES:
            place = controller / f"loopline-{name}"
            for folder in sorted(place.rglob("*"), reverse=True) if place.exists() else ():
                if folder.is_dir():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
            with contextlib.suppress(OSError):
                place.rmdir()


def _processes_of(folder: Path, name: str) -> list[psutil.Process]:
    """What runs on a node: its pods by their control group, its daemons by their arguments."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_of_pod = f"/loopline-{name}/" in Path(f"/proc/{process.pid}/cgroup").read_text()
            if process.pid != os.getpid() and (is_of_pod or f"{folder}/{name}" in " ".join(process.cmdline())):
                found.append(process)
    return found


def _end_processes(cluster: KubernetesCluster) -> None:
    for process in cluster.processes.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end and (left := [p for name in NODES for p in _processes_of(cluster.folder, name)]):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.2)


def _until(holds: Callable[[], bool], failure: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < end, f"{failure}: {log.read_text()[-5000:]}"
        time.sleep(0.3)
