"""What every test may use: an environment of its own, a workspace of its own, projects in it."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from models.pipeline.keys import CodeReader
from models.pipeline.steps import STEPS
from models.report import style
from tasks.host import database, memory, stores
from tasks.host.workspace import Project, Workspace
from tasks.mlflow import embedded_store
from tests import rewritten, shared_stores
from tests.environment import forget_the_user
from tests.preloaded import HUGE_MB, leave_pictures_blank, remember_databases, remember_operators, remember_ours
from tests.shared_stores import made_once

if TYPE_CHECKING:
    from tests.serving import LiveServer

ROOT = Path(__file__).parents[1]
SPEC = """\
name: {name}
data:
  source: data.csv
  target: y
"""
ROWS = "x,c,y\n" + "".join(f"{i / 7},{'uvw'[i % 3]},{'yes' if i % 4 else 'no'}\n" for i in range(200))

COLLECT = (50_000, 20, 100)
"""Garbage is collected more rarely: with torch and pandas loaded it took 12 % of the CPU of the unit tests."""

SEED = int(os.environ.get("FAULT_SEED", "0"))
"""Of what draws at random: fixed every day, another one under `make soak`."""

WHOLE, SHARED = "tests", "shared"
"""The folder that a whole run names, and that of what its workers share, beside theirs."""

LOGGING = "logging-plugin"
LOGS = pytest.StashKey[object]()
"""Pytest's capturing of logs, while no test uses it."""
SHOWN = logging.StreamHandler(io.StringIO())
SHOWN.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))

MakeOnce = Callable[..., Path]
MakeProject = Callable[..., Project]
Processes = Callable[..., list[subprocess.CompletedProcess[str]]]
Serve = Callable[..., "LiveServer"]


def pytest_configure(config: pytest.Config) -> None:
    """Forget what the user's shell says of the tools, before any of them is imported.

    GPUs are hidden unless the command line selects the tests marked `gpu`: the others fork ranks, and torch refuses to
    compute gradients in a fork of a process that did so on a GPU.
    """
    forget_the_user()
    if "gpu" not in config.option.markexpr or "not gpu" in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gc.set_threshold(*COLLECT)
    leave_pictures_blank()
    memory.WORTH_MB = HUGE_MB
    remember_ours()
    remember_databases()
    from hypothesis import settings
    from hypothesis.internal.conjecture import providers

    # No test fails because the machine is busy, and each day draws the same examples: none of the constants of those
    # of our modules that a worker happens to have imported (to read them took each worker of a fresh clone 5 CPU-s).
    is_soak = "FAULT_SEED" in os.environ
    if not is_soak:
        providers.is_local_module_file = lambda _: False
    examples = 300 if is_soak else 12 if "not wide" in config.option.markexpr else 50
    settings.register_profile("loopline", deadline=None, derandomize=not is_soak, max_examples=examples)
    settings.load_profile("loopline")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Of a whole run, make what its first tests wait for while the workers' parent imports."""
    if config.args == [WHOLE]:
        base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        config.add_cleanup(shared_stores.begin(base / SHARED))
        config.add_cleanup(rewritten.begin(ROOT / WHOLE))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The collector need not walk through four thousand tests, and all that they import, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_report_header() -> str:
    """Print the seed, for whoever wants to see a failure again."""
    return f"FAULT_SEED={SEED}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `soak` unless the command line selects them."""
    if "soak" in config.option.markexpr:
        return
    soak = [item for item in items if item.get_closest_marker("soak")]
    if soak:
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take pytest's capturing of logs out: it walks through a thousand loggers six times a test, for a millisecond."""
    session.config.stash[LOGS] = session.config.pluginmanager.unregister(name=LOGGING)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that reads the records (`caplog`) has it back."""
    plugins = item.config.pluginmanager
    reads = "caplog" in getattr(item, "fixturenames", ())
    if reads:
        plugins.register(item.config.stash[LOGS], LOGGING)
    try:
        return (yield)
    finally:
        if reads:
            plugins.unregister(name=LOGGING)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What was logged meanwhile is shown with a failure, as pytest does."""
    SHOWN.setStream(io.StringIO())
    logging.getLogger().addHandler(SHOWN)  # a library may have cleared them
    try:
        return (yield)
    finally:
        item.add_report_section("call", "log", SHOWN.stream.getvalue().strip())


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument: packed ones hold the time, and two workers must name a test alike."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Whatever a test does to the environment and to torch's threads ends with the test."""
    before = dict(os.environ)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if "torch.onnx._internal.exporter._registration" in sys.modules:
        remember_operators()
    yield
    if (after := dict(os.environ)) != before:
        for key in after.keys() - before.keys():
            del os.environ[key]
        os.environ.update(before.items() - after.items())


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn as a user's: for the tests of pictures."""
    monkeypatch.setattr(style, "as_svg", getattr(style.as_svg, "__wrapped__", style.as_svg))


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """A function that has one worker make a folder, for all workers of this test run: `once(name, make)`."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / SHARED
    shared.mkdir(exist_ok=True)
    return functools.partial(made_once, shared)


@pytest.fixture
def migrated_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each database is made by its migrations: for the tests of how one is made."""
    for module, make in ((database, "_create"), (embedded_store, "_make")):
        monkeypatch.setattr(module, make, getattr(module, make).__wrapped__)


@pytest.fixture(scope="session")
def code_memory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Fingerprints of all our code, read once for all tests."""
    path = tmp_path_factory.mktemp("code") / "code.json"
    reader = CodeReader(path)
    reader.parts([name for step in STEPS for name in step.code])
    reader.save()
    return path.read_text()


@pytest.fixture(scope="session")
def api(once: MakeOnce) -> Iterator[str]:
    """One Prefect server for all workspaces but those that show their own."""
    from tests.running import prefect_server

    with prefect_server(once(shared_stores.PREFECT)) as url:
        yield url


@pytest.fixture(scope="session")
def empty_store(once: MakeOnce) -> Path:
    """An initialised, empty tracking store, to copy."""
    return shared_stores.empty_store(once)


@pytest.fixture(scope="session")
def empty_prefect(once: MakeOnce, api: str) -> Path:
    """The database of a Prefect server that nobody has used."""
    from tests.running import EMPTY_PREFECT

    return once(shared_stores.PREFECT) / EMPTY_PREFECT


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """An empty workspace that LOOPLINE_HOME names; the tools' environment points into it."""
    root = tmp_path / "workspace"
    (root / "projects").mkdir(parents=True)
    monkeypatch.setenv("LOOPLINE_HOME", str(root))
    made = Workspace(root)
    made.make()
    stores.configure(made)
    return made


@pytest.fixture
def make_project(workspace: Workspace) -> MakeProject:
    """A function that writes a project of 200 rows into the workspace, or into `folder`."""

    def make(name: str = "tiny", spec: str = "", folder: Path | None = None, rows: str = ROWS) -> Project:
        folder = folder or workspace.root / "projects" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "project.yaml").write_text(SPEC.format(name=name) + spec)
        (folder / "data.csv").write_text(rows)
        return workspace.project(str(folder))

    return make


@pytest.fixture
def serve(workspace: Workspace) -> Iterator[Serve]:
    """A function that starts a server over the workspace: `serve("tiny", arguments=("--workers", "2"))`."""
    from tests.serving import live_server

    with contextlib.ExitStack() as servers:
        yield lambda *projects, **given: servers.enter_context(live_server(workspace, *projects, **given))


@pytest.fixture
def at_once(tmp_path: Path) -> Iterator[Processes]:
    """Run pieces of Python in processes of their own, all at the same time; heavy modules are imported already."""
    from tests import warm

    running: list[warm.Process] = []

    def run(*codes: str, cwd: Path = ROOT, timeout_s: float = 60) -> list[subprocess.CompletedProcess[str]]:
        done: list[subprocess.CompletedProcess[str]] = []
        running.clear()
        prints = [[tmp_path / f"at-once-{number}.{kind}" for kind in ("out", "err")] for number in range(len(codes))]
        for code, (out, err) in zip(codes, prints, strict=True):
            with Path(os.devnull).open("rb") as nothing, out.open("wb") as to_out, err.open("wb") as to_err:
                files = nothing.fileno(), to_out.fileno(), to_err.fileno()
                running.append(warm.server().start("-c", (code,), dict(os.environ), cwd, files))
        for code, process, (out, err) in zip(codes, running, prints, strict=True):
            returned = process.wait(timeout_s)
            done.append(subprocess.CompletedProcess(code, returned, out.read_text(), err.read_text()))
        return done

    yield run
    for process in running:
        process.kill()
