"""Who is alive: a process is known by host, pid and start time, and never mistaken for another."""

import json
import os
import subprocess
import sys

from tasks.runtime import processes


def test_this_process_lives() -> None:
    me = processes.identity()
    assert me["pid"] == os.getpid()
    assert processes.is_alive(me)
    assert processes.is_alive(json.loads(json.dumps(me)))


def test_another_process_sees_the_same_identity() -> None:
    code = (
        "import json, sys; from tasks.runtime import processes; print(json.dumps(processes.identity(int(sys.argv[1]))))"
    )
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


def test_what_runs_on_another_host_is_taken_to_live() -> None:
    assert processes.is_alive({"host": "elsewhere.example.org", "pid": 1, "started": "boot/1"})
