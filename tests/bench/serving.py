"""The server of champions against the bare call, against a server that does nothing else, and against MLflow's own.

All servers run at the same time with the same model, and are asked in turns, so that a busy machine is busy for all.
CPU is that of the server's process; the generator's (`tests.bench.load`) is not in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from models.inference.loaded_model import LoadedModel
from models.inference.predict import session
from tasks.host import ports
from tasks.host.workspace import Workspace
from tasks.release.settings import ServerSettings
from tasks.serve.prediction_logger import PredictionLogger, new_ids
from tests.bench import served_mlp
from tests.bench.load import Load, http_request, load
from tests.nginx import nginx
from tests.serving import LiveServer, crown, live_server

ROOT = Path(__file__).parents[2]
ROUNDS, ROUND_S = 15, 0.5
CALLS = 5000
SWAPS = 100
ERRORS, ERRORS_BEFORE = 1_000_000, 100_000
PATIENCE_S = 120.0
MANY = 8
"""Clients at once."""
ROWS = 1000
"""Rows of a large request."""
MOST_ROWS, PROBED_S = 85_000, 10.0
"""A request of so many rows is nearly as large as a server takes: 15.7 MB."""


@dataclass(frozen=True)
class Asked:
    """A server at one number of clients: medians over the rounds."""

    cpu_us: float
    p50_ms: float
    per_s: float


@dataclass(frozen=True)
class Serving:
    """All figures. `ours`, `plain`, `theirs`, `behind`: by the number of clients; `theirs` is MLflow's server.

    `behind` is our server with nginx before it, and the CPU of both. `of_plain`: our CPU for a request by that of the
    plain server, the median of all rounds, by the number of rows in a request of `MANY` clients; `behind_of_plain`:
    that of `behind`, of one row. `memory_mb` is that after requests of one row.
    """

    bare_us: float
    ours: Mapping[int, Asked]
    plain: Mapping[int, Asked]
    theirs: Mapping[int, Asked]
    behind: Mapping[int, Asked]
    of_plain: Mapping[int, float]
    behind_of_plain: float
    log_us: float
    ready_s: float
    their_ready_s: float
    memory_mb: float
    their_memory_mb: float


@dataclass(frozen=True)
class Swapped:
    """Answers while versions were swapped: how many, and how many failed or came from two versions."""

    swaps: int
    answers: int
    failed: int
    mixed: int


def compared(place: Path) -> Serving:
    """Ask three servers the same."""
    workspace = _workspace(place, "1")
    folder = workspace.cache / "models" / "bench" / "1"
    began = time.perf_counter()
    with live_server(workspace, "bench", cold=True) as server:
        ready_s = time.perf_counter() - began
        with (
            _plain(folder) as plain,
            _mlflow(folder, place) as (theirs, their_ready_s),
            _behind(server, place) as behind,
        ):
            processes = {"ours": _of(server), "plain": plain, "theirs": theirs, "behind": behind}
            *asked, of_plain_alone, behind_of_plain = _ask_in_turns(processes)
            memory = {name: one.memory_mb for name, one in processes.items()}
            of_plain = {1: of_plain_alone, ROWS: _large(processes)}
        log_us = _log_us(place, folder)
    bare_us = _bare_us(folder)
    return Serving(
        bare_us, *asked, of_plain, behind_of_plain, log_us, ready_s, their_ready_s, memory["ours"], memory["theirs"]
    )


def swapped(place: Path) -> Swapped:
    """Promote again and again under load; the weights of the two versions differ, so a mixed answer shows."""
    workspace = _workspace(place, "1", "2")
    crown(workspace, "bench", "1")
    with live_server(workspace, "bench", cold=True) as server:
        expected = {number: _prediction(server, workspace, number) for number in ("2", "1")}
        counts = {"mixed": 0}

        def look(answer: bytes) -> None:
            told = json.loads(answer.partition(b"\r\n\r\n")[2])
            if told["predictions"] != expected[told["version"]]:
                counts["mixed"] += 1

        with _promoting(workspace) as promoted:
            met = Load()
            while promoted.poll() is None:
                some = load(server.port, _request(server.port), seconds=1.0, clients=2, look=look)
                met.seconds += some.seconds
                met.failed += some.failed
        assert promoted.returncode == 0
    return Swapped(SWAPS, len(met.seconds), met.failed, counts["mixed"])


def probe_ms(place: Path) -> tuple[float, float]:
    """Milliseconds of the median and the longest probe while `MANY` clients send the largest requests."""
    workspace = _workspace(place, "1")
    with live_server(workspace, "bench", cold=True) as server, ProcessPoolExecutor(1, get_context("spawn")) as other:
        request, took = _request(server.port, MOST_ROWS), []
        loaded = other.submit(load, server.port, request, seconds=PROBED_S, clients=MANY)
        while not loaded.done():
            began = time.perf_counter()
            assert _hears(f"http://127.0.0.1:{server.port}/health")
            took.append((time.perf_counter() - began) * 1e3)
            time.sleep(0.05)
        assert not loaded.result().failed
    return statistics.median(took), max(took)


def errors_growth_mb(place: Path) -> float:
    """How much memory a server has more after a million requests that it refuses, each in one of several ways."""
    workspace = _workspace(place, "1")
    bodies = [b"{", b'{"dataframe_records": [{"x0": "a"}]}', b'{"dataframe_records": []}', b"[" * 2000, b"NaN"]
    with live_server(workspace, "bench", cold=True) as server:
        one = _of(server)

        def refused(count: int) -> None:
            for body in bodies:
                asked = http_request(server.port, "/invocations", body)
                assert load(server.port, asked, count=count // len(bodies), clients=MANY).failed >= count // len(bodies)

        refused(ERRORS_BEFORE)
        before = one.memory_mb
        refused(ERRORS)
        return one.memory_mb - before


@dataclass(frozen=True)
class _Server:
    """`processes`: those that answer; not what moves the log to its place later."""

    port: int
    processes: list[psutil.Process]
    headers: str = ""

    @property
    def cpu_s(self) -> float:
        return sum(sum(one.cpu_times()[:2]) for one in self.processes)

    @property
    def memory_mb(self) -> float:
        return sum(one.memory_info().rss for one in self.processes) / 1e6


def _of(server: LiveServer) -> _Server:
    return _Server(server.port, server.workers())


def _workspace(place: Path, *numbers: str) -> Workspace:
    workspace = Workspace(place / f"serving-{time.monotonic_ns()}")
    workspace.make()
    for number in numbers:
        served_mlp.write(workspace.cache / "models" / "bench" / number, int(number))
        crown(workspace, "bench", number)
    return workspace


def _request(port: int, rows: int = 1, headers: str = "") -> bytes:
    body = json.dumps({"dataframe_records": [served_mlp.ROW] * rows}).encode()
    return http_request(port, "/invocations", body, headers=headers)


def _ask_in_turns(servers: Mapping[str, _Server]) -> list[Any]:
    """What each met, by the number of clients; then ours, and ours behind nginx, by plain of `MANY` clients."""
    rounds: dict[tuple[str, int], list[Asked]] = {}
    for one in servers.values():
        load(one.port, _request(one.port, headers=one.headers), count=300)
    for clients in (1, MANY):
        for _ in range(ROUNDS):
            for name, one in servers.items():
                request = _request(one.port, headers=one.headers)
                rounds.setdefault((name, clients), []).append(_asked(one, request, clients))
    asked = [{clients: _median(rounds[name, clients]) for clients in (1, MANY)} for name in servers]
    return [*asked, *(_of_plain(rounds[name, MANY], rounds["plain", MANY]) for name in ("ours", "behind"))]


def _large(servers: Mapping[str, _Server]) -> float:
    """Ours by plain for requests of `ROWS` rows."""
    rounds: dict[str, list[Asked]] = {"ours": [], "plain": []}
    for _ in range(ROUNDS):
        for name, met in rounds.items():
            one = servers[name]
            met.append(_asked(one, _request(one.port, ROWS), MANY))
    return _of_plain(rounds["ours"], rounds["plain"])


def _asked(one: _Server, request: bytes, clients: int) -> Asked:
    before = one.cpu_s
    met = load(one.port, request, seconds=ROUND_S, clients=clients)
    assert not met.failed
    return Asked((one.cpu_s - before) / len(met.seconds) * 1e6, met.p50_ms, met.per_s)


def _of_plain(ours: list[Asked], plain: list[Asked]) -> float:
    return statistics.median(own.cpu_us / bare.cpu_us for own, bare in zip(ours, plain, strict=True))


def _median(rounds: list[Asked]) -> Asked:
    return Asked(*(statistics.median(getattr(one, key) for one in rounds) for key in ("cpu_us", "p50_ms", "per_s")))


def _feed() -> dict[str, np.ndarray]:
    return {name: np.array([value], float if isinstance(value, float) else object) for name, value in _row().items()}


def _row() -> dict[str, float | str]:
    return dict(served_mlp.ROW)


def _bare_us(folder: Path) -> float:
    """CPU of one call of the runtime with one row."""
    model, feed = session(folder / "model.onnx"), _feed()
    names = [one.name for one in model.get_outputs()]
    return _cpu_us(lambda: model.run(names, feed))


def _log_us(place: Path, folder: Path) -> float:
    """CPU of writing one answer to the prediction log."""
    served = LoadedModel("bench", "1", folder)
    rows = served.schema.from_records([served_mlp.ROW])
    book, answer = PredictionLogger(ServerSettings(str(place / "log"), ("bench",)), "bench"), served.answer(rows.feed)
    return _cpu_us(lambda: book.enter(served, new_ids(1), rows, answer))


def _cpu_us(call: object) -> float:
    assert callable(call)
    taken = []
    for _ in range(ROUNDS):
        before = time.process_time()
        for _ in range(CALLS):
            call()
        taken.append((time.process_time() - before) / CALLS * 1e6)
    return statistics.median(taken)


def _prediction(server: LiveServer, workspace: Workspace, number: str) -> object:
    crown(workspace, "bench", number)
    asked = {"dataframe_records": [served_mlp.ROW]}
    server.wait_until(lambda: server.post("/invocations", asked).json["version"] == number)
    return server.post("/invocations", asked).json["predictions"]


@contextlib.contextmanager
def _promoting(workspace: Workspace) -> Iterator[subprocess.Popen[bytes]]:
    """A process that swaps the two versions, each time after the release says the one before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.promoting", str(workspace.root), str(SWAPS)], cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _plain(folder: Path) -> Iterator[_Server]:
    port = ports.any_free([])
    command = [sys.executable, "-m", "tests.bench.plain_starlette", str(folder), str(port)]
    with _running(command, f"http://127.0.0.1:{port}/") as process:
        yield _Server(port, [process])


@contextlib.contextmanager
def _behind(server: LiveServer, place: Path) -> Iterator[_Server]:
    """The server with nginx before it, which lets one address ask as often as it can; each request needs the token."""
    with nginx(place, {"models": server.port}, {"rate=2000r/s": "rate=1000000r/s"}) as before:
        processes = [*server.workers(), before.process, *before.process.children()]
        (name, value), *_ = server.bearer().items()
        yield _Server(before.ports["models"], processes, f"{name}: {value}\r\n")


@contextlib.contextmanager
def _mlflow(folder: Path, place: Path) -> Iterator[tuple[_Server, float]]:
    """The same model, as `loopline run` registers it, behind `mlflow models serve`; and its seconds to ready."""
    import mlflow.pyfunc

    model = place / "mlflow-model"
    mlflow.pyfunc.save_model(
        path=model, loader_module="models.inference.portable", data_path=str(folder), pip_requirements=[]
    )
    port = ports.any_free([])
    program = str(Path(sys.executable).with_name("mlflow"))
    command = [program, "models", "serve", "-m", str(model), "-p", str(port), "--env-manager", "local", "-w", "1"]
    began = time.perf_counter()
    with _running(command, f"http://127.0.0.1:{port}/ping") as process:
        yield _Server(port, [process, *process.children(recursive=True)]), time.perf_counter() - began


@contextlib.contextmanager
def _running(command: list[str], address: str) -> Iterator[psutil.Process]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    process = psutil.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _hears(address):
            assert process.poll() is None, command
            assert time.monotonic() < deadline, command
            time.sleep(0.02)
        yield process
    finally:
        family = process.children(recursive=True)
        for one in (process, *family):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def _hears(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
