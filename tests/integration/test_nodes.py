"""Machines that come to a training and are lost: two agents here, and two network namespaces."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from multiprocessing.connection import Client
from pathlib import Path

import psutil
import pytest

from models.errors import UsageError
from tasks.host.http_guard import NODES_TOKEN
from tasks.ranks import rendezvous
from tasks.ranks.rendezvous import RendezvousServer, endpoint, interface

pytestmark = pytest.mark.integration

PROGRAM = Path(sys.executable).with_name("loopline")
TOKEN = "sesame-open-sesame"

SLOW = """
import time
import torch


class Net(torch.nn.Module):
    def __init__(self, num_numeric, num_outputs):
        super().__init__()
        self.layer = torch.nn.Linear(num_numeric, num_outputs)

    def forward(self, numeric):
        if self.training:
            time.sleep(0.01)
        return self.layer(numeric)
"""
LEAD = """
import json, sys
from pathlib import Path
from models.training.job import TrainingJob
from tasks.ranks.rank_pool import RankPool

job = TrainingJob.model_validate_json(Path(sys.argv[1]).read_text(), strict=False)

def on_epoch(epoch):
    for path in sorted((job.folder / "checkpoints").glob("step-*/state.json"), reverse=True)[:1]:
        print("world", json.loads(path.read_text())["world_size"], flush=True)
    return not (job.folder / "stop").exists()

with RankPool() as gang:
    result = gang.run(job, on_epoch, lambda line: print("say", line, flush=True))
print("result", result.model_dump_json(), flush=True)
"""


class Lead:
    """The machine that leads, and what it says."""

    def __init__(self, job, folder, *prefix, **environment):
        (folder / "job.json").write_text(job.model_dump_json())
        (folder / "lead.py").write_text(LEAD)
        self.job = job
        self.process = subprocess.Popen(
            [*prefix, sys.executable, folder / "lead.py", folder / "job.json"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, NODES_TOKEN: TOKEN, **environment},
        )  # fmt: skip

    def until(self, word, within_s=60):
        end = time.monotonic() + within_s
        for line in self.process.stdout:
            if line.startswith(word):
                return line
            assert time.monotonic() < end, f"no {word!r} within {within_s} s"
        raise AssertionError(f"ended before {word!r}")

    def result(self):
        (self.job.folder / "stop").touch()
        return json.loads(self.until("result").removeprefix("result "))

    def end(self):
        end_tree(self.process)


def end_tree(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def address_in(said):
    """HOST:PORT, the last word of what the one that leads says."""
    return said.rstrip("`\n").split()[-1]


def come(address, *prefix, token=TOKEN):
    return subprocess.Popen(
        [*prefix, PROGRAM, "join", address],
        env={**os.environ, "LOOPLINE_NODES_TOKEN": token},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def slow_job(make_job, tmp_path):
    (tmp_path / "net.py").write_text(SLOW)

    def make(**job):
        return make_job(net="./net.py:Net", epochs=5000, patience=None, nodes="1:2", job=job)

    return make


def test_a_node_comes_is_lost_and_comes_again(slow_job, tmp_path):
    lead, others = Lead(slow_job(), tmp_path, LOOPLINE_ENDPOINT="127.0.0.1:0"), []
    try:
        address = address_in(lead.until("say"))
        lead.until("world 1")
        others.append(come(address))
        lead.until("world 2")
        others[0].kill()
        lead.until("world 1")
        others.append(come(address))
        lead.until("world 2")
        result = lead.result()
        assert others[1].wait(15) == 0
    finally:
        lead.end()
        for other in others:
            end_tree(other)
            other.stderr.close()
    assert result["world_size"] == 2
    assert len(result["resumed_from"]) >= 3


RAISING = SLOW.replace(
    "time.sleep(0.01)",
    "time.sleep(0.01)\n        if torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:\n"
    '            raise ValueError("the sky is falling there")',
)


def test_what_a_rank_raises_on_another_node_reaches_the_one_that_leads(slow_job, tmp_path):
    job = slow_job()
    (tmp_path / "net.py").write_text(RAISING)
    (tmp_path / "job.json").write_text(job.model_dump_json())
    code = textwrap.dedent(
        """
        import subprocess, sys
        from pathlib import Path
        from models.errors import LooplineError
        from models.training.job import TrainingJob
        from tasks.ranks.rank_pool import RankPool
        job = TrainingJob.model_validate_json(Path(sys.argv[1]).read_text(), strict=False)
        others = []
        def say(line):
            others.append(subprocess.Popen([sys.argv[2], "join", line.rstrip("`").split()[-1]]))
        try:
            with RankPool() as gang:
                gang.run(job, say=say)
        except LooplineError as error:
            print(error, *error.__notes__)
        finally:
            others[0].wait(30)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "job.json", PROGRAM],
        capture_output=True, text=True, timeout=100, check=True, env={**os.environ, NODES_TOKEN: TOKEN},
    )  # fmt: skip
    assert "the sky is falling there" in done.stdout
    assert 'raise ValueError("the sky is falling there")' in done.stdout


@pytest.fixture
def namespaces():
    """Two network namespaces joined by a cable."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    names = [f"loopline-{os.getpid()}-{side}" for side in "ab"]
    try:
        for name in names:
            made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr.decode().strip()}")
            ip(name, "link", "set", "lo", "up")
        subprocess.run(
            [
                "ip",
                "link",
                "add",
                "veth0",
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                "name",
                "veth0",
                "netns",
                names[1],
            ],
            check=True,
        )
        for number, name in enumerate(names, 1):
            ip(name, "addr", "add", f"10.77.0.{number}/24", "dev", "veth0")
            ip(name, "link", "set", "veth0", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def ip(name, *words):
    subprocess.run(["ip", "-n", name, *words], check=True)


def test_a_cable_is_pulled_and_put_back(slow_job, tmp_path, namespaces):
    """No packet says that the other machine is gone: silence alone does."""
    first, second = (["ip", "netns", "exec", name] for name in namespaces)
    lead, other = Lead(slow_job(silence_s=3.0), tmp_path, *first, LOOPLINE_ENDPOINT="10.77.0.1:29477"), None
    try:
        lead.until("world 1")
        other = come("10.77.0.1:29477", *second)
        lead.until("world 2")
        ip(namespaces[1], "link", "set", "veth0", "down")
        lead.until("world 1")
        ip(namespaces[1], "link", "set", "veth0", "up")
        lead.until("world 2", 90)
        assert lead.result()["world_size"] == 2
    finally:
        lead.end()
        if other:
            end_tree(other)
            other.stderr.close()


@pytest.fixture
def opened(make_job, monkeypatch):
    """A job whose door is open to who knows the token, and what it said of that."""
    monkeypatch.setenv("LOOPLINE_NODES_TOKEN", TOKEN)
    job, said = make_job(nodes="2"), []
    with RendezvousServer(job, said.append) as door:
        door.open()
        yield job, door, said[0]


def test_who_does_not_know_the_token_stays_outside(opened):
    _, _, said = opened
    assert TOKEN not in said, "it was chosen by the user, who knows it"
    with pytest.raises(UsageError, match="the token is another"):
        rendezvous.join(address_in(said), "another-open-sesame", 5, print)
    with pytest.raises(UsageError, match=r"--token or LOOPLINE_NODES_TOKEN: got 4 characters, expected 16 or more"):
        rendezvous.join(address_in(said), "1f8e", 5, print)


def test_a_token_that_keeps_nobody_out_is_refused_before_anybody_is_let_in(make_job, monkeypatch):
    monkeypatch.setenv("LOOPLINE_NODES_TOKEN", "short")
    with pytest.raises(UsageError, match=r"LOOPLINE_NODES_TOKEN: got 5 characters, expected 16 or more"):
        RendezvousServer(make_job(nodes="2"), print)


def test_who_connects_and_says_nothing_keeps_nobody_waiting(opened):
    job, _, said = opened
    address = address_in(said)
    with socket.create_connection(endpoint(address)):
        with pytest.raises(UsageError, match="the token is another"):
            rendezvous.join(address, "another-open-sesame", 5, print)
        with Client(endpoint(address), authkey=TOKEN.encode()) as node:
            assert node.poll(10)
            assert json.loads(node.recv_bytes())["job"]["folder"] == str(job.folder)


def test_a_machine_with_other_code_or_another_folder_is_refused(opened, monkeypatch):
    job, door, said = opened
    address = address_in(said)
    with monkeypatch.context() as patched:
        real = rendezvous.versions()
        answers = iter([real, {**real, "code": "old"}])
        patched.setattr(rendezvous, "versions", lambda: next(answers))
        with pytest.raises(UsageError, match="code: got old, expected"):
            rendezvous.join(address, TOKEN, 5, print)
    (job.folder / ".shared").write_text("another folder")
    door._proof = job.folder.parent / "elsewhere"
    door._proof.write_text("this one")
    with pytest.raises(UsageError, match="not shared with the machine that leads"):
        rendezvous.join(address, TOKEN, 5, print)


def test_addresses_are_checked():
    assert endpoint("10.0.0.1:29400") == ("10.0.0.1", 29400)
    assert interface("127.0.0.1") == "lo"
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        endpoint("nowhere")
    with pytest.raises(UsageError, match="no network interface"):
        interface("192.0.2.1")
