"""Who is alive: a process is known by pid namespace, pid and start time, and never mistaken for another."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.host import processes
from tasks.host.locks import tried


def test_this_process_lives() -> None:
    me = processes.identity()
    assert me["pid"] == os.getpid()
    assert processes.is_alive(me)
    assert processes.is_alive(json.loads(json.dumps(me)))


def test_another_process_sees_the_same_identity() -> None:
    code = "import json, sys; from tasks.host import processes; print(json.dumps(processes.identity(int(sys.argv[1]))))"
    told = subprocess.run([sys.executable, "-c", code, str(os.getpid())], capture_output=True, check=True, text=True)
    assert processes.is_alive(json.loads(told.stdout))


def test_an_ended_process_is_dead_and_so_is_a_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = processes.identity(child.pid)
    assert processes.is_alive(identity)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(identity)  # not yet waited for: a zombie
    child.communicate()
    assert not processes.is_alive(identity)


def test_a_pid_used_again_is_another_process() -> None:
    me = processes.identity()
    assert not processes.is_alive({**me, "started": me["started"] + "0"})


def test_a_process_that_was_already_gone_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert processes.identity(child.pid)["started"] is None
    assert not processes.is_alive(processes.identity(child.pid))


ELSEWHERE = {"host": "elsewhere.example.org", "pids": "boot/pid:[1]", "pid": os.getpid(), "started": "boot/1"}


def test_what_runs_on_another_host_is_taken_to_live_and_is_none_of_ours() -> None:
    assert processes.is_alive(ELSEWHERE)
    assert not processes.is_here(ELSEWHERE)
    assert not processes.is_alive_here(ELSEWHERE)


def test_what_runs_on_another_host_lives_while_it_holds_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / "loop.lock"
    assert not processes.is_alive(ELSEWHERE, lock)
    with tried(lock):
        assert processes.is_alive(ELSEWHERE, lock)
    assert not processes.is_alive(ELSEWHERE, lock)


def test_a_lock_says_nothing_of_what_can_be_seen(tmp_path: Path) -> None:
    me = processes.identity()
    with tried(tmp_path / "loop.lock"):
        assert not processes.is_alive({**me, "started": "before"}, tmp_path / "loop.lock")
    assert processes.is_alive(me, tmp_path / "loop.lock")


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="elsewhere a host is known by its name alone")
def test_a_host_that_changed_its_name_still_sees_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = processes.identity(child.pid)
    monkeypatch.setattr(socket, "gethostname", lambda: "another.network.example.org")
    assert processes.is_alive_here(identity)
    child.communicate(b"\n")
    assert processes.is_here(identity)
    assert not processes.is_alive(identity)


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="elsewhere a host is known by its name alone")
@pytest.mark.parametrize("pids", ["deadbeef/pid:[4026531836]", None])
def test_a_machine_of_the_same_name_is_another_one(pids: str | None) -> None:
    """Two containers with the host's name, or a Mac that shares the disk with a Linux machine of its name."""
    namesake = {**processes.identity(), "pids": pids}
    assert not processes.is_here(namesake)
    assert not processes.is_alive_here(namesake)
    assert processes.is_alive({**namesake, "started": "before"})


def test_where_there_are_no_pid_namespaces_the_hosts_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_numbering", lambda: None)
    me = processes.identity()
    assert me["pids"] is None
    assert processes.is_alive_here(me)
    assert not processes.is_here({**me, "host": "elsewhere.example.org"})


def test_a_note_from_before_pids_were_noted_is_known_by_the_hosts_name() -> None:
    older = {key: value for key, value in processes.identity().items() if key != "pids"}
    assert processes.is_alive_here(older)
    assert not processes.is_here({**older, "host": "elsewhere.example.org"})
