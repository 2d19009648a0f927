"""`import loopline` interrupted at moments drawn by lot: by Ctrl-C a hundred times, by kill -9 twenty times."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopline import session
from models.pipeline.steps import STEPS
from tasks.host.leases import is_leased
from tasks.host.workspace import Workspace
from tasks.loop.history import last_loop, lease_of
from tasks.prefect.prefect_server import PrefectServer
from tests.conftest import SEED
from tests.fault.aftermath import half_written, running_trials
from tests.running import PROGRAM, ROOT, Loopline, assert_unlocked, eventually, flow_runs, leftovers

pytestmark = [pytest.mark.fault, pytest.mark.soak, pytest.mark.timeout(900)]

PROMISED_S = 5.0
TURNS, CALLS_A_TURN, KILLS = 20, 5, 20
EARLY = {"at once": 0.1, "start": 1.0, "imports": 4.0}
"""The longest wait before Ctrl-C that comes before the first step, counted from the call."""
MOMENTS = [*EARLY, *(step.name for step in STEPS), "end"]
CLIENT = """\
import json, os, sys, time
import pandas as pd
import pyarrow.parquet

def frame(seed):
    return pd.read_csv(CUSTOMERS).sample(frac=0.9, random_state=seed)

def say(**message):
    print(json.dumps(message), flush=True)

for line in sys.stdin:
    call = json.loads(line)
    os.environ["NUMBER_OF_THE_SESSION"] = call["session"]
    rows = frame(call["seed"])
    try:
        say(begun=time.monotonic())
        import loopline
        result = loopline.run(rows, target="left", name=call["name"], settings=call["settings"])
        outcome = f"finished: {result.project} {result.promoted}"
        if call["is_interrupted"]:
            time.sleep(60)
    except KeyboardInterrupt:
        outcome = "interrupted"
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    ended = time.monotonic()
    few = rows.head(1 + call["seed"] % 50)
    answer = loopline.load("steady").predict(few)
    say(outcome=outcome, ended=ended, is_own=list(answer.index) == list(few.index), took=time.monotonic() - ended)
"""


class Client:
    """A Python process that imports `loopline`, as a notebook's kernel does; its calls are for one workspace."""

    def __init__(self, home: Loopline) -> None:
        environ = {**home.environment, session.PROGRAM: str(PROGRAM)}
        code = f"CUSTOMERS = {str(ROOT / 'examples' / 'table' / 'customers.csv')!r}\n{CLIENT}"
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=home.home,
            env=environ,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self.process.stderr
        with contextlib.suppress(ValueError):
            for line in self.process.stderr:
                self.lines.append(line.rstrip())

    def begin(self, name: str, seed: int, *, is_interrupted: bool = True, is_new: bool = False) -> None:
        """Begin a loop of rows that no loop had before; with a new environment the call begins a new session."""
        settings = {"model.net": "mlp", "search.trials": 2, "search.epochs": 2, "train.epochs": 8}
        if seed % 3 == 0:
            settings = {"search.trials": 3, "search.epochs": 2}
        assert self.process.stdin
        self.lines.clear()
        call = {"name": name, "seed": seed, "settings": settings, "is_interrupted": is_interrupted}
        self.process.stdin.write(json.dumps({**call, "session": str(seed if is_new else 0)}) + "\n")
        self.process.stdin.flush()
        assert "begun" in self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "\n".join(self.lines)
        message: dict[str, Any] = json.loads(line)
        return message

    def wait_for(self, moment: str, draw: random.Random, lasts: dict[str, float]) -> None:
        """Until a moment of the loop; `end` begins with its last step's end."""
        if moment in EARLY:
            time.sleep(draw.uniform(0, EARLY[moment]))
            return
        begin = f"{STEPS[-1].name:18} done" if moment == "end" else f"{moment:18} ..."
        deadline = time.monotonic() + 120
        while not any(line.startswith(begin) for line in self.lines) and time.monotonic() < deadline:
            if moment != "end" and any(line.startswith(f"{moment} ") for line in self.lines):
                break
            time.sleep(0.005)
        time.sleep(draw.uniform(0, lasts.get(moment, 2.0)))

    def end(self) -> None:
        with self.process:
            self.process.kill()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path, empty_prefect: Path) -> Iterator[Loopline]:
    """A workspace with its own Prefect server, and a champion whose answers are asked for after each Ctrl-C."""
    home = Loopline(tmp_path_factory.mktemp("interrupted") / "home", {"LOOPLINE_SERVER_IDLE_S": "120"})
    home.begin(empty_store, empty_prefect)
    (home.home / "projects").mkdir()
    try:
        yield home
    finally:
        home.stop()


@pytest.fixture(scope="module")
def lasts(home: Loopline) -> dict[str, float]:
    """How long each step of a whole loop takes."""
    client = Client(home)
    try:
        client.begin("steady", 1, is_interrupted=False)
        heard = client.hear()
        assert heard["outcome"].startswith("finished: steady"), heard
        done = [re.match(r"(\S+) +done ([\d.]+) s", line) for line in client.lines]
        return {found[1]: max(0.3, float(found[2])) for found in done if found}
    finally:
        client.end()


def assert_closed(home: Loopline, name: str, client: Client | None) -> None:
    """No process works for the caller, nothing is locked or leased, and no record says that anything runs."""
    callers = [client.process, *psutil.Process(client.process.pid).children()] if client else []
    assert len(callers) in (0, 2), "a process with its session"
    pids = {process.pid for process in callers}
    left = [line for line in leftovers(home.home) if int(line.split()[0]) not in pids and not line.endswith(" reap")]
    assert not left, "\n".join(left)
    assert_unlocked(home.home, name)
    state = home.state(name)
    loop = last_loop(state) if state.exists() else None
    assert loop is None or loop.state != "running"
    assert not is_leased(home.home / ".loopline", lease_of(state))
    assert running_trials(home) == []
    # Ranks end by SIGKILL: what one of them was writing stays in its step's folder until `loopline gc`.
    assert [str(path) for path in half_written(home.home) if "work" not in path.relative_to(home.home).parts] == []


def assert_told(home: Loopline, name: str) -> None:
    """MLflow and Prefect hear of the end of a loop that was killed a little later, by `loopline reap`."""
    over = {"COMPLETED", "CRASHED", "FAILED", "CANCELLED"}
    eventually(lambda: set(home.runs().values()) <= {"FINISHED", "FAILED", "KILLED"}, "a run stays open")
    if api := PrefectServer(Workspace(home.home)).api():
        eventually(lambda: set(flow_runs(api, name, home.home).values()) <= over, "a flow run stays open")


@pytest.mark.parametrize("turn", range(TURNS))
def test_ctrl_c_ends_a_loop_within_five_seconds_with_its_books_closed(
    home: Loopline, lasts: dict[str, float], turn: int
) -> None:
    draw, client = random.Random(f"{SEED}/ctrl-c/{turn}"), Client(home)
    problems = []
    try:
        for number in range(CALLS_A_TURN):
            name = f"drawn-{turn % 4}"
            moment = MOMENTS[(CALLS_A_TURN * turn + number) % len(MOMENTS)]
            client.begin(name, 1000 + CALLS_A_TURN * turn + number, is_new=draw.random() < 0.3)
            begun = time.monotonic()
            client.wait_for(moment, draw, lasts)
            sent = time.monotonic()
            client.process.send_signal(signal.SIGINT)
            heard = client.hear()
            took = heard["ended"] - sent
            at = f"{turn}.{number} {moment}, {sent - begun:.2f} s"
            print(f"{at}: {heard['outcome']} in {took:.2f} s; the next call {heard['took']:.2f} s")
            try:
                assert heard["outcome"] == "interrupted"
                assert heard["is_own"]
                assert took <= PROMISED_S
                assert_closed(home, name, client)
                assert_told(home, name)
            except AssertionError as error:
                problems.append(f"{at}: {heard}: {error}\n" + "\n".join(client.lines))
                print(problems[-1])
        assert not problems
    finally:
        client.end()


@pytest.mark.parametrize("number", range(KILLS))
def test_a_caller_that_is_killed_leaves_no_process_after_five_seconds(
    home: Loopline, lasts: dict[str, float], number: int
) -> None:
    draw, client = random.Random(f"{SEED}/kill/{number}"), Client(home)
    try:
        moment = MOMENTS[number % len(MOMENTS)]
        client.begin("killed", 5000 + number)
        client.wait_for(moment, draw, lasts)
        client.process.kill()
        sent = time.monotonic()
        while (left := leftovers(home.home)) and time.monotonic() < sent + PROMISED_S:
            time.sleep(0.05)
        print(f"{moment}: gone in {time.monotonic() - sent:.2f} s")
        assert not left, "\n".join(left)
        home("reap").ok()
        assert_closed(home, "killed", None)
        assert_told(home, "killed")
    finally:
        client.end()
        for line in leftovers(home.home):
            with contextlib.suppress(psutil.Error):
                psutil.Process(int(line.split()[0])).kill()
