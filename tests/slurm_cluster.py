"""A Slurm cluster of a test's own: a controller here, two nodes in network namespaces, one file system for all."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "ip", "nsenter", "unshare")
NODES = ("n1", "n2")
NETWORK, BRIDGE = "10.78.3", "loopline-slurm"
HEAD = f"{NETWORK}.1"
START_S = 30
_PORTS = 26817, 26818

_CONFIGURATION = """\
ClusterName=loopline
SlurmctldHost={head}({network}.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPort={controller}
SlurmdPort={node}
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobRequeue=1
KillWait=2
SlurmdTimeout=10
MessageTimeout=5
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4 PriorityTier=1
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE PriorityTier=10 PreemptMode=OFF
"""
_NODE = "NodeName={name} NodeAddr={address} CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1"


def why_not() -> str:
    """Why no cluster can be made on this machine; empty if it can."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    if missing:
        return f"no {', '.join(missing)}: install slurmctld, slurmd, slurm-client, munge, iproute2"
    return "" if os.geteuid() == 0 else "network namespaces need root"


class SlurmCluster:
    """A running cluster; `environment` is what Slurm's programs need to find it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._controller: subprocess.Popen[bytes] | None = None
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *command: str) -> str:
        """Run a program of Slurm; gives what it prints."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **self.environment}
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def start_controller(self) -> None:
        """Start slurmctld."""
        self._controller = _start(["/usr/sbin/slurmctld", "-D"], self.folder, **self.environment)

    def kill_controller(self) -> None:
        """Kill slurmctld; jobs go on."""
        assert self._controller
        self._controller.kill()
        self._controller.wait()

    def start_node(self, name: str) -> None:
        """Start a node's slurmd."""
        self._nodes[name] = _start(_on_node(self.folder, name), self.folder)

    def kill_node(self, name: str) -> None:
        """Kill everything that runs on a node, as a loss of its power does."""
        for process in processes_of(name):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._nodes[name].wait()

    def cut_off(self, name: str) -> None:
        """Let nothing reach a node any more; what runs there goes on."""
        subprocess.run(["ip", "link", "set", f"lls{name}", "down"], check=True)

    def reconnect(self, name: str, slurmd_may_act: bool = True) -> None:
        """Undo `cut_off`; a slurmd that may act ends the jobs that were put back meanwhile."""
        self._nodes[name].send_signal(signal.SIGCONT if slurmd_may_act else signal.SIGSTOP)
        subprocess.run(["ip", "link", "set", f"lls{name}", "up"], check=True)

    def wait(self) -> None:
        """Wait until all nodes are idle."""
        _until(lambda: _idle(self) == len(NODES), "the nodes did not come", self.folder)

    def reap(self) -> None:
        """Wait for the daemons, which were killed."""
        for process in (self._controller, *self._nodes.values()):
            if process:
                process.wait()

    def jobs(self, name: str) -> list[list[str]]:
        """Number, state and restarts of the jobs of a name."""
        shown = self.run("squeue", "-h", "-t", "all", "-n", name, "-O", "JobID,State,RestartCnt")
        return [line.split() for line in shown.splitlines()]

    def job(self, number: str) -> list[str]:
        """State and restarts of a job."""
        return self.run("squeue", "-h", "-t", "all", "-j", number, "-O", "State,RestartCnt").split()

    def requeue(self, job: str) -> None:
        """Put a running job back into the queue and let it start at once: Slurm would wait for two minutes."""
        self.run("scontrol", "requeue", job)
        self.start_now(job)

    def start_now(self, job: str, within_s: float = 60) -> None:
        """Let a requeued job start at once."""
        end = time.monotonic() + within_s
        while self.run("squeue", "-h", "-j", job, "-o", "%T") != "PENDING":
            assert time.monotonic() < end, f"job {job} was not requeued"
            time.sleep(0.2)
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now")


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A cluster of two nodes; everything of it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    folder.chmod(0o755)  # munge's rule
    started: list[subprocess.Popen[bytes]] = []
    cluster = SlurmCluster(folder)
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        ending.callback(_end_processes, folder)
        _network(ending)
        _write_configuration(folder)
        munge = folder / "munge"
        files = [f"--{name}={munge / name}" for name in ("socket", "key-file", "pid-file", "seed-file", "log-file")]
        started.append(_start(["munged", "--foreground", "--force", *files], folder))
        _until(lambda: (munge / "socket").exists(), "munged did not start", folder)
        cluster.start_controller()
        for name in NODES:
            cluster.start_node(name)
        ending.callback(lambda: [process.wait() for process in started])
        ending.callback(_end_processes, folder)
        ending.callback(cluster.reap)
        ending.callback(_end_processes, folder)
        cluster.wait()
        yield cluster


def _network(ending: contextlib.ExitStack) -> None:
    def ip(*words: str, check: bool = True) -> None:
        subprocess.run(["ip", *words], check=check, capture_output=True)

    def clear() -> None:  # a namespace lives as long as a process in it, and would keep its cable
        for name in NODES:
            ip("link", "del", f"lls{name}", check=False)
            ip("netns", "del", f"{BRIDGE}-{name}", check=False)
        ip("link", "del", "lls0", check=False)

    clear()
    ending.callback(clear)
    ip("link", "add", "lls0", "type", "bridge")
    ip("addr", "add", f"{NETWORK}.1/24", "dev", "lls0")
    ip("link", "set", "lls0", "up")
    for number, name in enumerate(NODES, 11):
        space = f"{BRIDGE}-{name}"
        ip("netns", "add", space)
        ip("link", "add", f"lls{name}", "type", "veth", "peer", "name", "e0", "netns", space)
        ip("link", "set", f"lls{name}", "master", "lls0", "up")
        for words in (["addr", "add", f"{NETWORK}.{number}/24", "dev", "e0"], ["link", "set", "e0", "up"],
                      ["link", "set", "lo", "up"], ["route", "add", "default", "via", f"{NETWORK}.1"]):  # fmt: skip
            ip("-n", space, *words)


def _write_configuration(folder: Path) -> None:
    lines = [_NODE.format(name=name, address=f"{NETWORK}.{number}") for number, name in enumerate(NODES, 11)]
    values = {"folder": folder, "head": os.uname().nodename, "network": NETWORK, "nodes": "\n".join(lines)}
    (folder / "slurm.conf").write_text(_CONFIGURATION.format(**values, controller=_PORTS[0], node=_PORTS[1]))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    (folder / "state").mkdir()
    (folder / "munge").mkdir(mode=0o755)
    key = folder / "munge" / "key-file"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    names = "".join(f"{NETWORK}.{number} {name}\n" for number, name in enumerate(NODES, 11))
    (folder / "hosts").write_text(f"127.0.0.1 localhost {os.uname().nodename}\n{NETWORK}.1 head\n{names}")
    (folder / "nsswitch.conf").write_text(
        "passwd: files\ngroup: files\nhosts: files\n"
    )  # a name server takes 5 s to fail


def _on_node(folder: Path, name: str) -> list[str]:
    """A slurmd in the namespaces of a node. `ip netns exec` would hide /sys/fs/cgroup, without which slurmd fails."""
    inside = (
        f"hostname {name} && mount --bind {folder}/hosts /etc/hosts && "
        f"mount --bind {folder}/nsswitch.conf /etc/nsswitch.conf && "
        f"SLURM_CONF={folder}/slurm.conf exec /usr/sbin/slurmd -D -N {name}"
    )
    return ["nsenter", f"--net=/run/netns/{BRIDGE}-{name}", "unshare", "--uts", "--mount", "bash", "-c", inside]


def _idle(cluster: SlurmCluster) -> int:
    try:
        return cluster.run("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split().count("idle")
    except AssertionError:
        return 0


def processes_of(name: str) -> list[psutil.Process]:
    """What runs on a node: all processes in its network."""
    there = Path(f"/run/netns/{BRIDGE}-{name}").stat()
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.path.samestat(Path(f"/proc/{process.pid}/ns/net").stat(), there):
                found.append(process)
    return found


def _end_processes(folder: Path) -> None:
    """Kill what names the cluster's folder: its daemons, and its jobs' steps by their environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_of_slurm = process.environ().get("SLURM_CONF") == f"{folder}/slurm.conf"
            if process.pid != os.getpid() and (is_of_slurm or f"--socket={folder}/munge/socket" in process.cmdline()):
                process.kill()


def _start(command: list[str], folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    with (folder / "daemons.log").open("ab") as log:
        return subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=log, start_new_session=True
        )


def _until(holds: Callable[[], bool], failure: str, folder: Path) -> None:
    end = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < end, f"{failure}: {(folder / 'daemons.log').read_text()}"
        time.sleep(0.1)
